package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/jackc/pgx/v5"

	"refundd/ledger"
	"refundd/migrations"
	"refundd/test/testdb"
)

// A88: an e-mail address is found without case, and by the same letters, whatever locale the cluster or the database
// has.
func TestA88_EmailSearch_IsTheSameUnderEveryLocale(t *testing.T) {
	t.Parallel()
	base := testdb.Empty(t)
	locales := map[string]string{"c": `LOCALE 'C'`}
	var version int
	if err := base.Owner.QueryRow(t.Context(),
		`SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version >= 150000 { // before, a database has none of ICU's locales
		locales["tr"] = `LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C'`
		locales["en"] = `LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'`
	}
	for name, locale := range locales {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := base.Name + "_" + name
			if _, err := base.Owner.Exec(t.Context(),
				`CREATE DATABASE `+database+` TEMPLATE template0 ENCODING 'UTF8' `+locale); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_, _ = base.Owner.Exec(context.Background(), `DROP DATABASE `+database+` WITH (FORCE)`)
			})
			url := strings.Replace(base.URL, base.Name, database, 1)
			if err := migrations.Up(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			pool := testdb.Pool(t, url)
			if _, err := pool.Exec(t.Context(), `INSERT INTO tenants VALUES ('a')`); err != nil {
				t.Fatal(err)
			}
			for i, c := range []struct {
				has, asked string
				found      bool
			}{
				{"INFO@Example.com", "info@EXAMPLE.COM", true},
				{"iıİ@x.tr", "IıİX@x.tr", false},
				{"ıstanbul@x.tr", "istanbul@x.tr", false}, // two letters, in every language but one
				{"İstanbul@x.tr", "istanbul@x.tr", false},
				{"GROẞ@x.de", "groß@X.DE", true},
				{"gross@x.de", "groß@x.de", false},
				{"ΟΔΟΣ@x.gr", "οδος@x.gr", true},
				{"οδοσ@x.gr", "οδος@x.gr", true},
				{"ÄNN@x.se", "änn@x.se", true},
				{"ПОЧТА@x.ua", "почта@X.UA", true},
				{"𐐀@x.com", "𐐀@X.com", true},
				{"a%@x.com", "ab@x.com", false},
			} {
				order := fmt.Sprint("P-", i)
				if _, err := pool.Exec(t.Context(), `INSERT INTO orders (tenant_id, order_id, currency, captured_cents,
					customer_email)
					VALUES ('a', $1, 'EUR', 1, $2)`, order, c.has); err != nil {
					t.Fatal(err)
				}
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					found, err := ledger.FindByCustomer(t.Context(), tx, "a", ledger.CustomerQuery{Email: &c.asked}, 10)
					has := false
					for _, o := range found {
						has = has || o.OrderID == order
					}
					if has != c.found {
						t.Errorf("%q finds %q: %t, want %t", c.asked, c.has, has, c.found)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The letters are those that Unicode folds, as far as the function reaches.
func TestFoldCase_IsUnicodesSimpleFolding(t *testing.T) {
	db := books(t)
	covered := func(r rune) bool { return (r < 0x588 || 0x1e00 <= r && r < 0x1f00) && !unicode.Is(unicode.Mn, r) }
	var letters, folded []string
	for r := rune(1); r < 0x1f00; r++ {
		if covered(r) && (r < 0xd800 || r > 0xdfff) {
			letters = append(letters, string(r))
		}
	}
	if err := db.Pool.QueryRow(t.Context(), `SELECT array_agg(fold_case(l) ORDER BY n)
		FROM unnest($1::text[]) WITH ORDINALITY AS x (l, n)`, letters).Scan(&folded); err != nil {
		t.Fatal(err)
	}
	is := make(map[rune]string, len(letters))
	for i, l := range letters {
		is[[]rune(l)[0]] = folded[i]
	}
	of := make(map[string]rune)
	for r, f := range is {
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			if covered(other) && is[other] != f {
				t.Errorf("%q is folded to %q, and %q to %q", r, f, other, is[other])
			}
		}
		if known, ok := of[f]; ok && !sameLetter(known, r) {
			t.Errorf("%q and %q are both folded to %q", known, r, f)
		}
		of[f] = r
	}
}

func sameLetter(a, b rune) bool {
	for r := unicode.SimpleFold(a); r != a; r = unicode.SimpleFold(r) {
		if r == b {
			return true
		}
	}
	return false
}

package api

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refundd/access"
	"refundd/operations"
)

// exportedErrors is the names of a room's exported sentinels, by its source.
func exportedErrors(t *testing.T, room string) []string {
	t.Helper()
	var names []string
	for _, file := range parseRoom(t, room) {
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR {
				continue
			}
			for _, spec := range group.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no sentinel in %s", room)
	}
	return names
}

func parseRoom(t *testing.T, room string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", room, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// mentions counts room.Name in the source of another room.
func mentions(t *testing.T, in string) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, file := range parseRoom(t, in) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if room, ok := s.X.(*ast.Ident); ok {
					counts[room.Name+"."+s.Sel.Name]++
				}
			}
			return true
		})
	}
	return counts
}

func TestProblems_EveryExportedSentinelHasARow(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{}
	for _, file := range parseRoom(t, "api") {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != "sentinels" {
				return true
			}
			for _, row := range spec.Values[0].(*ast.CompositeLit).Elts {
				s := row.(*ast.CompositeLit).Elts[0].(*ast.SelectorExpr)
				rows[s.X.(*ast.Ident).Name+"."+s.Sel.Name] = true
			}
			return false
		})
	}
	for _, room := range []string{"operations", "access"} {
		for _, name := range exportedErrors(t, room) {
			if !rows[room+"."+name] {
				t.Errorf("%s.%s has no row", room, name)
			}
		}
	}
	restated := mentions(t, "operations")
	for _, name := range exportedErrors(t, "ledger") {
		if restated["ledger."+name] == 0 || !rows["operations."+name] {
			t.Errorf("ledger.%s has no row under its name in operations", name)
		}
	}
}

func TestProblems_EverySentinelsCodeIsKnown(t *testing.T) {
	t.Parallel()
	x := &exchange{ref: "ref", match: match{names: namesOperation}}
	for _, s := range sentinels {
		for _, err := range []error{s.err, fmt.Errorf("act: %w", s.err), &operations.Refusal{Err: s.err}} {
			if p := x.problem(err); p.Code != s.code || p.Title == "" || p.Detail == "" || p.Status < 400 {
				t.Errorf("%v: %+v", err, p)
			}
		}
	}
}

// TestProblems_AreAsDocumented reads the table of openapi.yaml.
func TestProblems_AreAsDocumented(t *testing.T) {
	t.Parallel()
	documented := 0
	for line := range strings.Lines(string(openapiYAML)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 5 || strings.HasPrefix(cells[0], "| code") || !strings.HasPrefix(cells[0], "| ") {
			continue
		}
		for code := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), ", ") {
			documented++
			k, known := kinds[code]
			moved := string(k.moved)
			switch code {
			case codeAlreadyExecuted:
				moved = "as the operation's"
			case "provider_unavailable":
				moved = "no; unknown on resolve"
			}
			got := []string{
				strconv.Itoa(k.status), map[bool]string{true: "yes", false: "no"}[k.retryable], moved, k.next + " |",
			}
			if d := cmp.Diff(cells[1:], got); !known || d != "" {
				t.Errorf("%s:\n%s", code, d)
			}
		}
	}
	if documented != len(kinds) {
		t.Errorf("%d codes are documented, %d known", documented, len(kinds))
	}
}

func TestProblems_NeverSayOfMoneyWhatWasNotRead(t *testing.T) {
	t.Parallel()
	row := func(s operations.State) *operations.Operation {
		return &operations.Operation{OperationID: "k", State: s}
	}
	for _, c := range []struct {
		name   string
		err    error
		names  naming
		moved  operations.MoneyMoved
		status int
	}{
		{"refused by api", &rejection{code: codeMalformedRequest}, namesOperation, unknown, 400},
		{"refused by api, nothing named", &rejection{code: codeMalformedRequest}, namesNone, no, 400},
		{"no such path below an operation", &rejection{code: codeNotFound}, namesOperation, unknown, 404},
		{"not authenticated", access.ErrUnauthenticated, namesOperation, unknown, 401},
		{"database lost", operations.ErrDatabaseUnavailable, namesOperation, unknown, 503},
		{"database lost, nothing named", operations.ErrDatabaseUnavailable, namesNone, no, 503},
		{"no row", operations.ErrAuthorizationExpired, namesOperation, no, 422},
		{"no row that was found", operations.ErrRefundNotFound, namesOperation, unknown, 404},
		{"row succeeded", &operations.Refusal{Err: operations.ErrAuthorizationNotFound, Operation: row("succeeded")},
			namesOperation, "yes", 404},
		{"row reserved", &operations.Refusal{Err: operations.ErrInProgress, Operation: row("reserved")}, namesOperation,
			unknown, 409},
		{"row succeeded, somebody looks again",
			&operations.Refusal{Err: operations.ErrInProgress, Operation: row("succeeded")}, namesOperation, unknown,
			409},
		{"provider not asked", &operations.Refusal{Err: operations.ErrProviderUnavailable}, namesOperation, no, 503},
		{"provider not reached", &operations.Refusal{Err: operations.ErrProviderUnavailable,
			Operation: row("needs_attention")}, namesOperation, unknown, 503},
		{"provider disagrees", &operations.Refusal{Err: operations.ErrProviderDisagrees, Operation: row("succeeded")},
			namesOperation, unknown, 422},
		{"resolved otherwise", &operations.Refusal{Err: operations.ErrResolutionConflict, Operation: row("failed")},
			namesOperation, unknown, 422},
		{"row failed", &operations.Refusal{Err: operations.ErrDeclined, Operation: row("failed")}, namesOperation,
			no, 422},
		{"row revoked", &operations.Refusal{Err: operations.ErrAuthorizationRevoked, Operation: row("revoked")},
			namesOperation, no, 422},
		{"executed", &operations.Refusal{Err: operations.ErrAlreadyExecuted, Operation: row("succeeded")},
			namesOperation, "yes", 422},
		{"executed, not told how", operations.ErrAlreadyExecuted, namesOperation, unknown, 422},
		{"conflict", &operations.Refusal{Err: operations.ErrOperationConflict, Operation: row("succeeded")},
			namesOperation, no, 422},
		{"a bug", errors.New("boom"), namesOperation, unknown, 500},
		{"late", context.DeadlineExceeded, namesOperation, unknown, 504},
		{"left", fmt.Errorf("read: %w", context.Canceled), namesOperation, unknown, 504},
	} {
		x := &exchange{match: match{names: c.names}}
		if p := x.problem(c.err); p.MoneyMoved != c.moved || p.Status != c.status {
			t.Errorf("%s: %d money_moved %s, want %d %s", c.name, p.Status, p.MoneyMoved, c.status, c.moved)
		}
	}
}

func TestProblems_ADeclineIsReplayedWithItsFirstTimes(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 31, 9, 30, 0, 123456000, time.UTC)
	code := "card_lost"
	x := &exchange{ref: "ref", match: match{names: namesOperation}}
	p := x.problem(&operations.Refusal{Err: operations.ErrDeclined, Replayed: true, Operation: &operations.Operation{
		OperationID: "k", State: operations.StateFailed, FailureCode: &code, CreatedAt: created, SettledAt: &created,
	}})
	got, err := p.reply().encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"urn:refundd:problem:refund_declined","title":"Refund declined","status":422,` +
		`"detail":"The refund failed for good; failure_code says why.","code":"refund_declined","isRetryable":false,` +
		`"money_moved":"no","next_action":"request_authorization","operation_id":"k","diagnostic_ref":"ref","replayed":true,` +
		`"failure_code":"card_lost","created_at":"2026-01-31T09:30:00.123456Z","settled_at":"2026-01-31T09:30:00.123456Z"}`
	if d := cmp.Diff(want, string(got)); d != "" || !p.reply().replayed {
		t.Errorf("problem:\n%s", d)
	}
}

func TestProblems_WaitingIsWholeSeconds(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2,
		90 * time.Second: 90} {
		if got := wholeSeconds(wait); got != want {
			t.Errorf("%v: %d, want %d", wait, got, want)
		}
	}
}

type foreignError struct{ secret string }

func (e foreignError) Error() string    { return "failed for " + e.secret }
func (e foreignError) SQLState() string { return "57P01" }

func TestSafeCause_KeepsActsAndDropsForeignTexts(t *testing.T) {
	t.Parallel()
	canary := foreignError{"canary"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("claim key: %w", fmt.Errorf("insert: %w", canary)), "claim key: insert: api.foreignError"},
		{fmt.Errorf("read: %w: %w", operations.ErrDatabaseUnavailable, canary),
			"read: database unavailable: api.foreignError"},
		{&operations.Refusal{Err: operations.ErrProviderUnavailable}, "provider unavailable"},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), "read: unexpected EOF"},
		{errors.Join(canary, io.EOF), "api.foreignError: EOF"},
		{errors.New("canary"), "*errors.errorString"},
	} {
		if got := safeCause(c.err); got != c.want || strings.Contains(got, "canary") {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	attrs := appendCause(nil, fmt.Errorf("claim key: %w", canary))
	if len(attrs) != 2 || attrs[1].Value.String() != "57P01" {
		t.Errorf("attributes: %v", attrs)
	}
}

func TestProblems_OfARouteThatPanicsAreInternal(t *testing.T) {
	t.Parallel()
	log := &logBuffer{}
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{log: slog.New(slog.NewJSONHandler(log, nil)), metrics: m, timeout: time.Minute}
	s.router = newRouter([]route{{http.MethodGet, "/v1/refunds/{operation_id}", public, namesOperation,
		func(context.Context, *exchange) (reply, error) { panic("canary") }}})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/refunds/op-1", nil))
	for _, want := range []string{`"code":"internal"`, `"money_moved":"unknown"`, `"operation_id":"op-1"`} {
		if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), want) {
			t.Errorf("answer: %d %s, want %s", w.Code, w.Body, want)
		}
	}
	line := log.line(t, w.Header().Get("Request-Id"))
	if strings.Contains(line+w.Body.String(), "canary") || !strings.Contains(line, `"cause":"panic: string"`) ||
		!strings.Contains(line, `"level":"ERROR"`) || !strings.Contains(line, "goroutine") {
		t.Errorf("log event: %s", line)
	}
}

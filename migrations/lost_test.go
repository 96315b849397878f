package migrations_test

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/migrations"
	"refundd/test/testdb"
)

// A85: a connection is lost at each message of a migration, before it reaches Postgres and after it was answered,
// COMMIT included. The database is at one version or the other, never between, and Up goes on by itself or says that it
// may be called again.
func TestA85_TheConnectionIsLostAtEachMessage(t *testing.T) {
	t.Parallel()
	whole := relations(t, testdb.New(t).Owner)
	for name, c := range map[string]struct {
		answered, forGood bool
		first, stride     int
	}{
		"NeverArrives": {false, false, signIn + 1, stride}, "IsAnswered": {true, false, signIn + stride, stride},
		// All further tries are made here, which takes seconds.
		"IsAnsweredAndThereIsNoOtherConnection": {true, true, signIn + 1, 4 * stride},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := c.first; loseAt(t, at, c.answered, c.forGood, whole); at += c.stride {
				if at > 80 {
					t.Fatal("a migration has no end")
				}
			}
		})
	}
}

// signIn is how many messages a connection begins with. Where it is lost there, nothing was begun.
const signIn = 3

// relations is how many tables and indexes there are, without the version's.
func relations(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relname NOT LIKE 'schema_migrations%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// loseAt migrates up and down over a network that loses the at-th message, and tells whether there was one.
func loseAt(t *testing.T, at int, answered, forGood bool, whole int) (lost bool) {
	t.Helper()
	db := testdb.Empty(t)
	for _, move := range []struct {
		name  string
		do    func(url string) error
		after int
	}{
		{"up", func(url string) error { return migrations.Up(t.Context(), url) }, whole},
		{"down", func(url string) error { return migrations.Down(t.Context(), url) }, 0},
	} {
		p := newCutter(t, db.URL, at, answered, forGood)
		err := move.do(p.url)
		switch {
		case err != nil && !forGood:
			t.Errorf("%s, message %d is lost: %v", move.name, at, err)
		case err != nil:
			if again := move.do(db.URL); again != nil {
				t.Errorf("%s again, after message %d was lost and %v: %v", move.name, at, err, again)
			}
		}
		if got := relations(t, db.Owner); got != move.after {
			t.Errorf("%s, message %d was lost: %d relations, want %d", move.name, at, got, move.after)
		}
		lost = lost || p.cut.Load()
	}
	return lost
}

// cutter is a network in front of Postgres that breaks at one message of its first connection.
type cutter struct {
	url      string
	upstream string
	at       int
	answered bool // the message is answered, and the answer is lost
	forGood  bool // there is no second connection
	cut      atomic.Bool
	first    atomic.Bool
}

func newCutter(t *testing.T, databaseURL string, at int, answered, forGood bool) *cutter {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{upstream: u.Host, at: at, answered: answered, forGood: forGood}
	u.Host = listener.Addr().String()
	p.url = u.String()
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			if p.cut.Load() && p.forGood {
				_ = client.Close()
				continue
			}
			open.Go(func() { p.carry(client) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	return p
}

// carry takes messages to Postgres, and answers back, until one of them is the one to lose. What a client writes at
// once is one message here.
func (p *cutter) carry(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	loses := p.first.CompareAndSwap(false, true)
	var deaf atomic.Bool
	heard := make(chan struct{}) // closed once Postgres answered what is lost, or hung up
	var back sync.WaitGroup
	back.Go(func() {
		defer func() { _ = client.Close() }()
		defer close(heard)
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if deaf.Load() {
				return
			}
			if _, writeErr := client.Write(buffer[:n]); err != nil || writeErr != nil {
				return
			}
		}
	})
	defer back.Wait()
	defer func() { _ = server.Close() }()
	buffer := make([]byte, 64<<10)
	for n := 1; ; n++ {
		size, err := client.Read(buffer)
		if err != nil && !errors.Is(err, io.EOF) || size == 0 {
			return
		}
		last := loses && n == p.at
		if last {
			p.cut.Store(true)
			deaf.Store(true)
			if !p.answered {
				return
			}
		}
		if _, err := server.Write(buffer[:size]); err != nil {
			return
		}
		if last {
			<-heard
			return
		}
	}
}

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"refundd/test/testdb"
)

// deadPipe is a pipe that is full and that nobody reads, or whose reader has gone.
func deadPipe(t *testing.T, gone bool) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	if gone {
		_ = r.Close()
		return w
	}
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = w.WriteString("x\n")
	}
	return w
}

// deadPipes runs the test with either.
func deadPipes(t *testing.T, test func(t *testing.T, streams *os.File, gone bool)) {
	for name, gone := range map[string]bool{"TheReaderHasGone": true, "TheReaderDoesNotRead": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streams := deadPipe(t, gone)
			test(t, streams, gone)
		})
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l := listenLocally(t)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func TestA72_ServeWithADeadLog_AnswersAndStops(t *testing.T) {
	t.Parallel()
	deadPipes(t, func(t *testing.T, streams *os.File, gone bool) {
		db := testdb.New(t)
		succeed(t, db.URL, "tenants", "create", "--tenant", "shop")
		key := succeed(t, db.URL, "keys", "create", "--tenant", "shop", "--scopes",
			"orders:write,authorizations:write,refunds:write,read")
		addr, admin := freeAddress(t), freeAddress(t)
		p := startWith(t, streams, []string{"DATABASE_URL=" + db.ServiceURL}, "serve", "--addr", addr,
			"--admin-addr", admin,
			"--drain-delay", "0s")
		eventually(t, "the service", func() bool {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil || p.ended()
		})
		c := caller{"http://" + addr, key}
		var group sync.WaitGroup
		for i := range 8 { // 400 lines are more than a pipe holds
			group.Go(func() {
				for j := range 50 {
					c.expect(t, 201, "PUT", fmt.Sprintf("/v1/orders/A-%d-%d", i, j),
						`{"currency":"EUR","captured_cents":5000}`)
				}
			})
		}
		group.Wait()
		if gone {
			eventually(t, "the lost lines to be counted", func() bool {
				metrics := caller{"http://" + admin, ""}.expect(t, 200, "GET", "/metrics", "").body
				return strings.Contains(metrics, "\nrefundd_log_lines_lost_total ") &&
					!strings.Contains(metrics, "\nrefundd_log_lines_lost_total 0\n")
			})
		}
		p.signal(t, syscall.SIGTERM)
		if code := p.wait(t, 20*time.Second); code != 0 {
			t.Errorf("exits %d (%v)", code, p.cmd.ProcessState)
		}
	})
}

func TestA72_DevWithADeadLog_ServesAndStops(t *testing.T) {
	t.Parallel()
	deadPipes(t, func(t *testing.T, streams *os.File, _ bool) {
		folder := dataFolder(t)
		p := startWith(t, streams, nil, "dev", "--addr", "127.0.0.1:0", "--data", folder)
		d := awaitDev(t, p, folder)
		d.expect(t, 201, "POST", "/v1/refunds", `{"operation_id":"op-2001-a","order_id":"J-2001","amount_cents":5800}`)
		d.stop(t, syscall.SIGTERM, folder)
	})
}

func TestA72_ReconcileWithADeadLog_Works(t *testing.T) {
	t.Parallel()
	deadPipes(t, func(t *testing.T, streams *os.File, _ bool) {
		db := testdb.New(t)
		once := startWith(t, streams, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile")
		if code := once.wait(t, 30*time.Second); code != 0 {
			t.Errorf("a run exits %d (%v)", code, once.cmd.ProcessState)
		}
		loop := startWith(t, streams, []string{"DATABASE_URL=" + db.ServiceURL}, "reconcile", "--every", "100ms")
		eventually(t, "ten runs", func() bool {
			var runs int
			err := db.Owner.QueryRow(t.Context(), `SELECT count(*) FROM reconciliation_runs`).Scan(&runs)
			return err == nil && runs >= 11 || loop.ended()
		})
		loop.signal(t, syscall.SIGTERM)
		if code := loop.wait(t, 30*time.Second); code != 0 {
			t.Errorf("the loop exits %d (%v)", code, loop.cmd.ProcessState)
		}
	})
}

// A command whose result nobody reads to its end has done its work all the same.
func TestA72_AToolWhoseReaderLeft_EndsWell(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	succeed(t, db.URL, "tenants", "create", "--tenant", "shop")
	for _, args := range [][]string{{"keys", "list"}, {"audit", "--json"}, {"--help"}} {
		p := startWith(t, deadPipe(t, true), []string{"DATABASE_URL=" + db.URL}, args...)
		if code := p.wait(t, 30*time.Second); code != 0 {
			t.Errorf("%v exits %d (%v)", args, code, p.cmd.ProcessState)
		}
	}
}

// What waits for the log's reader at the end is written, the last sentence after the lines before it.
func TestA72_WhatIsQueuedIsWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	c, flush := newConsole(w, w)
	const n = 2000 // more than a pipe holds
	for i := range n {
		c.log.InfoContext(context.Background(), "line", "number", i)
	}
	fmt.Fprintln(c.stderr, "last")
	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		read <- string(text)
	}()
	flush()
	_ = w.Close()
	text := <-read
	if strings.Count(text, "\n") != n+1 || !strings.HasSuffix(text, "\nlast\n") || c.lost() != 0 {
		t.Errorf("%d lines arrive, %d are lost; at the end %.100q", strings.Count(text, "\n"), c.lost(),
			text[max(0, len(text)-100):])
	}
}

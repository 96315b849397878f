package client_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"refundd/client"
)

const apiKey = "canary-secret-key"

// act is what the service does with one request instead of answering it well.
type act func(w http.ResponseWriter, r *http.Request)

// stage is a service of a few lines that executes each operation once, and that misbehaves as its script says: the next
// act is taken for each request to refund, after or before the refund is executed.
type stage struct {
	*httptest.Server

	mu       sync.Mutex
	before   []act // instead of executing
	after    []act // after executing, instead of the answer
	gets     []act // instead of answering a look-up
	executed map[string]int
	seen     []string // METHOD operation-id attempt
}

func newStage(t *testing.T) *stage {
	s := &stage{executed: make(map[string]int)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/refunds", s.post)
	mux.HandleFunc("GET /v1/refunds/{id}", s.get)
	s.Server = httptest.NewServer(mux)
	s.Config.ErrorLog = nil
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// client is a client of the stage that waits little.
func (s *stage) client(t *testing.T, change func(*client.Config)) *client.Client {
	t.Helper()
	config := client.Config{BaseURL: s.URL, APIKey: apiKey, AttemptTimeout: 300 * time.Millisecond,
		Deadline: 10 * time.Second}
	if change != nil {
		change(&config)
	}
	c, err := client.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(acts *[]act) act {
	if len(*acts) == 0 {
		return nil
	}
	a := (*acts)[0]
	*acts = (*acts)[1:]
	return a
}

func (s *stage) note(r *http.Request, id string) {
	s.seen = append(s.seen, strings.Join([]string{r.Method, id, r.Header.Get("Refund-Attempt")}, " "))
}

func (s *stage) post(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asked client.RefundRequest
	if err := json.Unmarshal(body, &asked); err != nil {
		http.Error(w, "bad", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.note(r, asked.OperationID)
	if instead := next(&s.before); instead != nil {
		s.mu.Unlock()
		instead(w, r)
		return
	}
	replayed := s.executed[asked.OperationID] > 0
	if !replayed {
		s.executed[asked.OperationID] = int(asked.AmountCents)
	}
	instead := next(&s.after)
	s.mu.Unlock()
	if instead != nil {
		instead(w, r)
		return
	}
	status, word := http.StatusCreated, "processed"
	if replayed {
		status, word = http.StatusOK, "already_processed"
	}
	receipt(w, status, asked.OperationID, asked.AmountCents, word, replayed)
}

func (s *stage) get(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	s.mu.Lock()
	s.note(r, id)
	instead := next(&s.gets)
	cents, found := s.executed[id]
	s.mu.Unlock()
	switch {
	case instead != nil:
		instead(w, r)
	case found:
		receipt(w, http.StatusOK, id, int64(cents), "", false)
	default:
		refuse(http.StatusNotFound, "refund_not_found", true, "unknown", nil)(w, r)
	}
}

// requests are those that were seen so far, and how many operations were executed.
func (s *stage) requests() (seen []string, executed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(seen, s.seen...), len(s.executed)
}

func receipt(w http.ResponseWriter, status int, id string, cents int64, word string, replayed bool) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"operation_id":%q,"refund_id":"r","order_id":"A-1","amount_cents":%d,"currency":"USD","reason":null,
		"metadata":{},"state":"succeeded","money_moved":"yes","provider":"ledger","provider_refund_id":null,
		"failure_code":null,"created_at":"2026-01-02T03:04:05Z","settled_at":"2026-01-02T03:04:05Z","status":%q,
		"replayed":%t,"next_action":"none","retry_after_seconds":null}`, id, cents, word, replayed)
}

// refuse answers a problem.
func refuse(status int, code string, retryable bool, moved string, header map[string]string) act {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"type":"urn:refundd:problem:%[2]s","title":"t","status":%[1]d,"detail":"in words","code":%[2]q,
			"isRetryable":%[3]t,"money_moved":%[4]q,"next_action":"retry_same_operation","diagnostic_ref":"ref-1"}`,
			status, code, retryable, moved)
	}
}

// page answers as a proxy in between does.
func page(status int, header map[string]string) act {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "<html>"+http.StatusText(status)+"</html>")
	}
}

// reset ends the connection with a RST instead of an answer.
func reset(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// truncate ends the connection in the middle of an answer.
func truncate(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	fmt.Fprint(conn, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n"+
		"{\"operation_id\":\"K\"")
	_ = conn.Close()
}

// hang never answers.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// drip answers more slowly than anybody waits.
func drip(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	for r.Context().Err() == nil {
		fmt.Fprint(w, " ")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(20 * time.Millisecond)
	}
}

// garble answers a complete 201 that is no receipt.
func garble(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"operation_id":"somebody else's"}`)
}

// halve answers a receipt that says nothing of the money.
func halve(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprint(w, `{"operation_id":"K","order_id":"A-1","amount_cents":4999,"status":"processed","money_moved":"perhaps"}`)
}

// swell answers without end.
func swell(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

// handler is the act for every request.
func (a act) handler() http.Handler { return http.HandlerFunc(a) }

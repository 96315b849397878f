package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/client"
)

const canary = "canary-4711"

// conversation is a client beside tools whose service is a handler, and what they log and count.
type conversation struct {
	*mcp.ClientSession
	tools *Tools

	mu    sync.Mutex
	log   bytes.Buffer
	calls []Call
}

func (c *conversation) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *conversation) OnCall(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
}

func converse(t *testing.T, service http.HandlerFunc, more func(*Tools, *mcp.Server)) *conversation {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c := &conversation{}
	calls, err := client.New(client.Config{BaseURL: server.URL, APIKey: canary})
	if err != nil {
		t.Fatal(err)
	}
	c.tools, err = New(Config{Client: calls, Logger: slog.New(slog.NewJSONHandler(c, nil)), OnCall: c.OnCall})
	if err != nil {
		t.Fatal(err)
	}
	s := c.tools.Server()
	more(c.tools, s)
	here, there := mcp.NewInMemoryTransports()
	if _, err := s.Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	model := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	if c.ClientSession, err = model.Connect(t.Context(), here, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// await waits for the one call that is counted.
func (c *conversation) await(t *testing.T) (Call, string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		calls, log := len(c.calls), c.log.String()
		c.mu.Unlock()
		switch {
		case calls == 1:
			return c.calls[0], log
		case time.Now().After(deadline):
			t.Fatalf("%d calls counted\n%s", calls, log)
		}
	}
}

// A tool that panics answers in the one shape; why is told to the log alone.
func TestCall_AToolPanics(t *testing.T) {
	t.Parallel()
	c := converse(t, http.NotFound, func(tools *Tools, s *mcp.Server) {
		add(tools, s, &mcp.Tool{Name: "broken", InputSchema: object("")},
			func(*Tools, context.Context, *mcp.CallToolRequest, struct{}) Result { panic(canary) })
	})
	r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "broken"})
	if err != nil {
		t.Fatal(err)
	}
	text := r.Content[0].(*mcp.TextContent).Text
	if !r.IsError || strings.Contains(text, canary) || !strings.Contains(text, `"code":"tool_failed"`) ||
		!strings.Contains(text, `"money_moved":"unknown"`) {
		t.Error(text)
	}
	call, log := c.await(t)
	if call.Tool != "broken" || call.Code != codeToolFailed || call.Canceled {
		t.Errorf("counted as %+v", call)
	}
	if !strings.Contains(log, `"level":"WARN"`) || !strings.Contains(log, "panic: "+canary) {
		t.Error(log)
	}
}

// A call that its client gives up is logged as that, and is nobody's fault.
func TestCall_IsCanceledMidway(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 8)
	c := converse(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}, func(*Tools, *mcp.Server) {})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	look := &mcp.CallToolParams{Name: "get_refund", Arguments: map[string]any{"case_id": "C"}}
	if _, err := c.CallTool(ctx, look); err == nil {
		t.Fatal("answered")
	}
	call, log := c.await(t)
	if !call.Canceled || call.Code != client.CodeCanceled {
		t.Errorf("counted as %+v", call)
	}
	if strings.Contains(log, `"level":"WARN"`) || !strings.Contains(log, `"canceled":true`) ||
		strings.Contains(log, canary) {
		t.Error(log)
	}
}

// Whatever a service or something before it answers, a model reads words of the tools' own.
func TestCall_NoAnswerOfStrangersReachesAModel(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"a proxy's page": func(w http.ResponseWriter,
			_ *http.Request) {
			http.Error(w, "<p>"+canary, http.StatusBadGateway)
		},
		"an unknown code": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"code":"` + canary + `","detail":"` + canary + `","money_moved":"` + canary +
				`","next_action":"` + canary +
				`","diagnostic_ref":"<` + canary + `>","isRetryable":false}`))
		},
		"a redirect": func(w http.ResponseWriter,
			r *http.Request) {
			http.Redirect(w, r, "/"+canary, http.StatusFound)
		},
		"not JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(canary)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := converse(t, answer, func(*Tools, *mcp.Server) {})
			r, err := c.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "get_refund", Arguments: map[string]any{"case_id": "C"}})
			if err != nil {
				t.Fatal(err)
			}
			if text := r.Content[0].(*mcp.TextContent).Text; !r.IsError || strings.Contains(text, canary) ||
				!strings.Contains(text, `"money_moved":"unknown"`) {
				t.Error(text)
			}
		})
	}
}

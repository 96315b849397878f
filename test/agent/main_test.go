// Package agent calls refundd's tools as models do, over both transports, from real processes against a real service.
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/test/harness"
	"refundd/test/testdb"
)

func TestMain(m *testing.M) { testdb.Main(harness.Run(m)) }

// agentScopes are those of the key that the tools use: it can ask and execute, and neither approve nor register.
const agentScopes = "refunds:request,refunds:write,read"

// model is a conversation with the tools.
type model struct {
	t          testing.TB
	session    *mcp.ClientSession
	schemas    map[string]*jsonschema.Resolved
	mu         sync.Mutex
	transcript strings.Builder
}

// overStdio starts `refundd mcp` as a desktop client does.
func overStdio(t testing.TB, serverURL, key string, flags ...string) *model {
	t.Helper()
	return connect(t, command(t, serverURL, key, flags...), nil)
}

func command(t testing.TB, serverURL, key string, flags ...string) *mcp.CommandTransport {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), append([]string{"mcp", "--server-url", serverURL}, flags...)...)
	cmd.Env = []string{"REFUNDD_API_KEY=" + key, "GORACE=halt_on_error=1 atexit_sleep_ms=0"}
	return &mcp.CommandTransport{Command: cmd}
}

// bearer sends the caller's key.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return http.DefaultTransport.RoundTrip(r)
}

// overHTTP talks to a `refundd mcp --addr`.
func overHTTP(t testing.TB, endpoint, key string) *model {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: &http.Client{Transport: bearer{key}}, MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
}

func connect(t testing.TB, transport mcp.Transport, options *mcp.ClientOptions) *model {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "model", Version: "1"}, options).Connect(ctx,
		transport, nil)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = session.Close() })
	m := &model{t: t, session: session, schemas: map[string]*jsonschema.Resolved{}}
	tools, err := session.ListTools(ctx, nil)
	if err != nil {
		t.Fatalf("list tools: %v", err)
	}
	for _, tool := range tools.Tools {
		text, err := json.Marshal(tool.OutputSchema)
		if err != nil {
			t.Fatal(err)
		}
		var schema jsonschema.Schema
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatalf("%s: output schema: %v", tool.Name, err)
		}
		if m.schemas[tool.Name], err = schema.Resolve(nil); err != nil {
			t.Fatalf("%s: output schema: %v", tool.Name, err)
		}
	}
	return m
}

// args are a tool's arguments.
type args map[string]any

// answer is a result as the model reads it.
type answer map[string]any

func (a answer) text(name string) string { s, _ := a[name].(string); return s }

// call calls a tool and holds its answer against the tool's own schema; its text and its structured content say the
// same.
func (m *model) call(tool string, in args) answer {
	m.t.Helper()
	a, err := m.try(context.Background(), tool, in)
	if err != nil {
		m.t.Errorf("%s %v: %v", tool, in, err)
	}
	return a
}

func (m *model) try(ctx context.Context, tool string, in args) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := m.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		return nil, err
	}
	if len(r.Content) != 1 {
		return nil, fmt.Errorf("%d contents", len(r.Content))
	}
	text, ok := r.Content[0].(*mcp.TextContent)
	if !ok {
		return nil, fmt.Errorf("the content is no text")
	}
	m.mu.Lock()
	fmt.Fprintln(&m.transcript, tool, in, text.Text)
	m.mu.Unlock()
	var said answer
	if err := json.Unmarshal([]byte(text.Text), &said); err != nil {
		return nil, fmt.Errorf("the text is no JSON: %w: %s", err, text.Text)
	}
	structured, err := json.Marshal(r.StructuredContent)
	if err != nil {
		return nil, err
	}
	var same answer
	if err := json.Unmarshal(structured, &same); err != nil || fmt.Sprint(same) != fmt.Sprint(said) {
		return nil, fmt.Errorf("the text %s and the structured content %s differ", text.Text, structured)
	}
	if err := m.schemas[tool].Validate(map[string]any(said)); err != nil {
		return nil, fmt.Errorf("the answer breaks the schema: %w: %s", err, text.Text)
	}
	if r.IsError != (said["code"] != nil) {
		return nil, fmt.Errorf("isError %t of %s", r.IsError, text.Text)
	}
	return said, nil
}

// want calls a tool and compares its status, its code and what it says of the money.
func (m *model) want(tool string, in args, says string) answer {
	m.t.Helper()
	a := m.call(tool, in)
	got := strings.TrimSpace(a.text("status") + " " + a.text("code") + " " + a.text("money_moved"))
	if got = strings.Join(strings.Fields(got), " "); got != says {
		m.t.Errorf("%s %v says %q, want %q: %v", tool, in, got, says, a)
	}
	return a
}

// hides fails the test where a model was told what it must not see.
func (m *model) hides(secrets ...string) {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range append(secrets, harness.Canary, "/v1/", "127.0.0.1", "Bearer", "rr-") {
		if i := strings.Index(m.transcript.String(), s); i >= 0 {
			all := m.transcript.String()
			m.t.Errorf("a model was told %q: …%s", s, all[max(0, i-200):min(len(all), i+100)])
		}
	}
}

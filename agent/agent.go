// Package agent offers refundd to models as tools of the Model Context Protocol.
//
// Its promises:
//
//   - A model neither chooses nor sees an operation id: the tool finds it through the case's authorizations, so that
//     whatever is called again, reworded or in parallel, each approved refund is executed at most once.
//   - Of several authorizations none is picked: order and amount must match exactly one, or nothing moves and all are
//     listed.
//   - Every tool answers in one shape, also where it failed, as text and as structured content. A refusal is a result
//     with isError, not a fault of the protocol; a search that found nothing is not a search that failed.
//   - money_moved is never untrue, and no answer comes from memory: nothing that protects money lives in this process.
//   - One choke point shapes, logs and counts every answer. No error's text, address, header, secret or other tenant's
//     name reaches a model.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"refundd/client"
)

// Config is what Tools need.
type Config struct {
	Client  *client.Client
	Logger  *slog.Logger // optional
	Version string       // of the program, as clients are told
	Confirm bool         // ask the person in the conversation before a refund is executed, where the client can
	OnCall  func(Call)   // optional: told of every call, for metrics
}

// Call is one call of a tool, as told to Config.OnCall.
type Call struct {
	Tool     string
	Status   string // of the answer
	Code     string // of the failure; empty where there is none
	Canceled bool   // the client gave up: no fault of anybody's
	Took     time.Duration
}

// Tools are refundd's tools over one client.
type Tools struct {
	config Config
}

// New returns the tools, or the fault of the configuration.
func New(c Config) (*Tools, error) {
	if c.Client == nil {
		return nil, errors.New("configure agent: no client")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnCall == nil {
		c.OnCall = func(Call) {}
	}
	c.Version = cmp.Or(c.Version, "development")
	return &Tools{c}, nil
}

// of returns the tools as the caller of a request has them: over HTTP each request brings the caller's own API key.
func (t *Tools) of(req *mcp.CallToolRequest) *Tools {
	if req.Extra == nil || req.Extra.Header == nil {
		return t
	}
	key, ok := bearer(req.Extra.Header)
	if !ok {
		return t
	}
	callers := *t
	callers.config.Client = t.config.Client.As(key)
	return &callers
}

// Server returns an MCP server with the tools.
func (t *Tools) Server() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "refundd", Title: "Refunds", Version: t.config.Version},
		&mcp.ServerOptions{
			Instructions: instructions,
			Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		})
	add(t, s, findOrders, (*Tools).findOrders)
	add(t, s, checkRefund, (*Tools).checkRefund)
	add(t, s, requestRefund, (*Tools).requestRefund)
	add(t, s, processRefund, (*Tools).processRefund)
	add(t, s, processRefunds, (*Tools).processRefunds)
	add(t, s, getRefund, (*Tools).getRefund)
	add(t, s, escalateToHuman, (*Tools).escalateToHuman)
	return s
}

// act is what a tool does with its arguments.
type act[In any] func(t *Tools, ctx context.Context, req *mcp.CallToolRequest, in In) Result

// add offers a tool. This is the choke point: whatever a tool did, its answer is shaped, logged and counted here, once.
func add[In any](t *Tools, s *mcp.Server, tool *mcp.Tool, do act[In]) {
	s.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began := time.Now()
		r := guarded(ctx, t.of(req), req, do)
		if r.ask != nil {
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{confirmation: r.ask}}, nil
		}
		canceled := errors.Is(ctx.Err(), context.Canceled)
		t.tell(ctx, req, r, Call{tool.Name, r.Status, r.Code, canceled, time.Since(began)})
		return r.wire(), nil
	})
}

// guarded reads the arguments and runs a tool. One that panics is a failure like any other.
func guarded[In any](ctx context.Context, t *Tools, req *mcp.CallToolRequest, do act[In]) (r Result) {
	defer func() {
		if v := recover(); v != nil {
			r = broken()
			r.cause = fmt.Sprintf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	in, fault := arguments[In](req.Params.Arguments)
	if fault != nil {
		return *fault
	}
	return do(t, ctx, req, in).shaped()
}

// tell logs and counts one answer.
func (t *Tools) tell(ctx context.Context, req *mcp.CallToolRequest, r Result, c Call) {
	level := slog.LevelInfo
	if r.failed() && r.Status == StatusFailed && !c.Canceled {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("tool", c.Tool), slog.String("status", c.Status), slog.String("code", c.Code),
		slog.String("money_moved", string(r.MoneyMoved)), slog.Bool("canceled", c.Canceled),
		slog.String("diagnostic_ref", r.DiagnosticRef), slog.Float64("duration_ms",
			float64(c.Took.Microseconds())/1000),
	}
	if r.cause != "" {
		attrs = append(attrs, slog.String("cause", r.cause))
	}
	if label, ok := req.Params.Meta[clientKey].(string); ok {
		attrs = append(attrs, slog.String("client_key", bounded(label, 255)))
	}
	t.config.Logger.LogAttrs(context.WithoutCancel(ctx), level, "tool", attrs...)
	t.config.OnCall(c)
}

// clientKey is where a client may put a key of its own beside the arguments. It labels the attempt in the log and
// decides nothing.
const clientKey = "idempotencyKey"

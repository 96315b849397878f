package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"refundd/agent"
	"refundd/api"
	"refundd/client"
	"refundd/cmd/refundd/internal/fault"
)

type mcpCmd struct {
	ServerURL   string        `name:"server-url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where refundd serves its API (default ${default})."`
	APIKey      string        `name:"api-key" placeholder:"KEY" help:"The key that the tools use over stdio, better given as REFUNDD_API_KEY; over HTTP each caller brings its own."`
	Addr        string        `placeholder:"HOST:PORT" help:"Serve streamable HTTP here instead of stdio."`
	AdminAddr   string        `placeholder:"HOST:PORT" help:"Where /metrics and /healthz are served (default nowhere)."`
	AllowRemote bool          `help:"Let --addr be an address that other machines reach."`
	Confirm     bool          `help:"Ask the person in the conversation before a refund is executed, where the client can."`
	Deadline    time.Duration `default:"45s" help:"Of one call of the service, its retries included."`
}

// Run serves the tools until the client leaves or it is told to stop. Over stdio, stdout is the protocol's alone.
func (m mcpCmd) Run(ctx context.Context, c console) error {
	if m.APIKey == "" && m.Addr == "" {
		return fault.Usage("refundd mcp needs a key: set REFUNDD_API_KEY")
	}
	registry := processRegistry(c)
	tools, err := m.tools(c.log, registry)
	if err != nil {
		return err
	}
	// The tools serve whatever becomes of the service: that it is away is an answer, too.
	admin, adminAddr, err := openAdmin(ctx, c, m.AdminAddr, registry, func(context.Context) error { return nil })
	if err != nil {
		return err
	}
	working, done := context.WithCancel(context.WithoutCancel(ctx)) // metrics are served to the last
	defer done()
	group, broken := errgroup.WithContext(ctx)
	group.Go(func() error { return admin(working) })
	group.Go(func() error {
		defer done()
		if m.Addr != "" {
			return m.serve(broken, c.log, tools, adminAddr)
		}
		c.log.Info("serving tools", "admin_addr", adminAddr)
		return talk(broken, tools)
	})
	return group.Wait()
}

// talk serves one client over stdio, until it leaves.
func talk(ctx context.Context, tools *agent.Tools) error {
	err := tools.Server().Run(ctx, &mcp.StdioTransport{})
	if err != nil && ctx.Err() == nil && !errors.Is(err, mcp.ErrConnectionClosed) {
		return fmt.Errorf("serve the tools: %w", err)
	}
	return nil
}

func (m mcpCmd) tools(log *slog.Logger, registry prometheus.Registerer) (*agent.Tools, error) {
	key := m.APIKey
	if key == "" {
		key = "none" // over HTTP every caller brings its own
	}
	metrics, err := agent.NewMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	service, err := client.New(client.Config{
		BaseURL: m.ServerURL, APIKey: key, Deadline: m.Deadline, OnAttempt: metrics.Attempted,
	})
	if err != nil {
		return nil, fault.Usage("%s", err)
	}
	return agent.New(agent.Config{
		Client: service, Logger: log, Version: thisBuild().version, Confirm: m.Confirm, OnCall: metrics.Called,
	})
}

// serve answers on --addr until ctx ends, and then what is in flight.
func (m mcpCmd) serve(ctx context.Context, log *slog.Logger, tools *agent.Tools, adminAddr string) error {
	host, _, err := net.SplitHostPort(m.Addr)
	if err != nil {
		return fault.Usage("--addr takes HOST:PORT such as 127.0.0.1:8090, not %q", m.Addr)
	}
	if ip := net.ParseIP(host); !m.AllowRemote && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fault.Usage("--addr %s can be reached from other machines: say --allow-remote, and put TLS in front of it",
			m.Addr)
	}
	listener, err := listen(ctx, "--addr", m.Addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", tools.Handler())
	server := api.NewServer("", mux, api.Timeouts{Write: m.Deadline + writeSlack}, log)
	answered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(answered)
		grace, cancel := context.WithTimeout(context.Background(), min(m.Deadline, serveGrace))
		defer cancel()
		_ = server.Shutdown(grace) // what is not through by then is cut off: the refund's caller asks again
	})
	log.Info("serving tools", "addr", listener.Addr().String(), "path", "/mcp", "admin_addr", adminAddr)
	err = serveOn(server, listener)
	if !stop() {
		<-answered
	}
	return err
}

package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"refundd/api"
)

// processRegistry collects what every long-running process tells of itself.
func processRegistry(c console) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		c.lostLines(),
		thisBuild().collector(),
	)
	return registry
}

// openAdmin listens on --admin-addr and returns what serves there until its context ends, and the address. Where nobody
// asked for one, it does nothing, at no address.
func openAdmin(ctx context.Context, c console, addr string, registry *prometheus.Registry,
	ready func(context.Context) error) (
	serve func(context.Context) error, at string, err error,
) {
	if addr == "" {
		return func(context.Context) error { return nil }, "", nil
	}
	handler, err := api.NewAdmin(api.AdminConfig{Gatherer: registry, Logger: c.log, Ready: ready})
	if err != nil {
		return nil, "", fmt.Errorf("make admin api: %w", err)
	}
	listener, err := listen(ctx, "--admin-addr", addr)
	if err != nil {
		return nil, "", err
	}
	server := api.NewServer("", handler, api.Timeouts{}, c.log)
	return func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = server.Close() }) // it is closed either way
		return serveOn(server, listener)
	}, listener.Addr().String(), nil
}

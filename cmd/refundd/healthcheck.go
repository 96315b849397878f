package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"refundd/cmd/refundd/internal/fault"
)

const healthTimeout = 3 * time.Second

type healthcheckCmd struct {
	Addr string `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"What serve was given as its own --addr (default ${default})."`
	URL  string `name:"url" placeholder:"URL" help:"Where the server is, if it is not on this machine."`
}

// Run ends well only if the server's /healthz answers 200 within healthTimeout.
func (h healthcheckCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	base, err := h.base(ctx)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("healthz").String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("ask /healthz: %w", err)
	}
	response, err := (&http.Client{Transport: &http.Transport{}}).Do(request) // which asks no proxy
	if err != nil {
		return fault.New(err, "unhealthy: no answer from %s", base.Host)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("unhealthy: /healthz of %s answers %s", base.Host, response.Status)
	}
	return nil
}

// base is where the server answers.
func (h healthcheckCmd) base(ctx context.Context) (*url.URL, error) {
	if h.URL == "" {
		return listeningOn(ctx, h.Addr)
	}
	base, err := url.Parse(h.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fault.Usage("--url must be an address such as http://127.0.0.1:8080")
	}
	return base, nil
}

// listeningOn is where a server on this machine answers that was told to listen on addr: one that listens everywhere
// does so on the loopback of the same family.
func listeningOn(ctx context.Context, addr string) (*url.URL, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fault.Usage("--addr takes HOST:PORT such as 127.0.0.1:8080, not %q", addr)
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil || number == 0 {
		return nil, fault.Usage("--addr %s: the port is a number from 1 to 65535 here", addr)
	}
	switch ip := net.ParseIP(host); {
	case host == "":
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified() && ip.To4() == nil:
		host = "::1"
	case ip != nil && ip.IsUnspecified():
		host = "127.0.0.1"
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(number))}, nil
}

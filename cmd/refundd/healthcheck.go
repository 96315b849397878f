package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const healthTimeout = 3 * time.Second

type healthcheckCmd struct {
	URL string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where the server is (default ${default})."`
}

// Run ends well only if the server's /healthz answers 200 within healthTimeout.
func (h healthcheckCmd) Run(ctx context.Context) error {
	base, err := url.Parse(h.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return usage("--url must be an address such as http://127.0.0.1:8080")
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("healthz").String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("ask /healthz: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return &fault{text: "unhealthy: no answer from " + base.Host, cause: err}
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("unhealthy: /healthz of %s answers %s", base.Host, response.Status)
	}
	return nil
}

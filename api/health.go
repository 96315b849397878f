package api

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"time"

	"refundd/operations"
)

// readyTimeout bounds one look at what the service needs.
const readyTimeout = 2 * time.Second

type health struct {
	Status string `json:"status"`
}

// healthz tells that the process lives; it asks nobody.
func healthz(context.Context, *exchange) (reply, error) {
	return reply{status: http.StatusOK, body: health{Status: "ok"}}, nil
}

// readyz tells whether the service can take requests.
func (s *server) readyz(ctx context.Context, _ *exchange) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := s.ready(ctx)
	switch {
	case err == nil:
		return reply{status: http.StatusOK, body: health{Status: "ok"}}, nil
	case errors.Is(err, operations.ErrOverloaded):
		return reply{}, err
	default:
		return reply{}, fmt.Errorf("ask whether ready: %w: %w", operations.ErrDatabaseUnavailable, err)
	}
}

// root says where the contract is.
type root struct {
	Service  string `json:"service"`
	Contract string `json:"contract"`
}

const contractPath = "/openapi.yaml"

// pointToContract answers whoever comes without a path (RFC 8631 has the link's name).
func pointToContract(context.Context, *exchange) (reply, error) {
	return reply{
		status: http.StatusOK, body: root{Service: "refundd", Contract: contractPath},
		link: "<" + contractPath + `>; rel="service-desc"; type="application/yaml"`,
	}, nil
}

//go:embed openapi.yaml
var openapiYAML []byte

// contract answers the OpenAPI document of this very build.
func contract(context.Context, *exchange) (reply, error) {
	return reply{status: http.StatusOK, raw: openapiYAML, mediaType: "application/yaml"}, nil
}

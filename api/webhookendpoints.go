package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"refundd/operations"
	"refundd/webhooks"
)

const endpointsPath = "/v1/webhook-endpoints"

// endpointBody is what POST /v1/webhook-endpoints says.
type endpointBody struct {
	URL         *string   `json:"url"`
	Description *string   `json:"description"`
	EventTypes  []*string `json:"event_types"`
}

// webhookEndpoint is an endpoint on the wire; every member is always present.
type webhookEndpoint struct {
	EndpointID      string           `json:"endpoint_id"`
	URL             string           `json:"url"`
	Description     *string          `json:"description"`
	EventTypes      *[]string        `json:"event_types"`
	State           string           `json:"state"`
	DisabledBecause *webhooks.Reason `json:"disabled_because"`
	DisabledAt      *timestamp       `json:"disabled_at"`
	FailingSince    *timestamp       `json:"failing_since"`
	OldSecretUntil  *timestamp       `json:"old_secret_until"`
	CreatedAt       timestamp        `json:"created_at"`
}

// secretEndpoint is an endpoint and its secret, which is shown once.
type secretEndpoint struct {
	webhookEndpoint
	Secret string `json:"secret"`
}

func endpointOf(e webhooks.Endpoint) webhookEndpoint {
	shown := webhookEndpoint{
		EndpointID: e.ID, URL: e.URL, Description: e.Description, State: "enabled", DisabledBecause: e.DisabledBecause,
		DisabledAt: optionalTime(e.DisabledAt), FailingSince: optionalTime(e.FailingSince),
		OldSecretUntil: optionalTime(e.OldSecretUntil), CreatedAt: timestamp(e.CreatedAt),
	}
	if e.EventTypes != nil {
		shown.EventTypes = &e.EventTypes
	}
	switch {
	case e.DeletedAt != nil:
		shown.State = "deleted"
	case e.DisabledAt != nil:
		shown.State = "disabled"
	}
	return shown
}

func readNewEndpoint(in *input) webhooks.NewEndpoint {
	b := body[endpointBody](in)
	return webhooks.NewEndpoint{
		TenantID: in.tenant(), KeyID: in.x.principal.KeyID, URL: in.requiredText("/url", b.URL, webhooks.MaxURL),
		Description: in.words("/description", b.Description, maxReason), EventTypes: in.eventTypes(b.EventTypes),
	}
}

// eventTypes takes types, each once; none at all would be an endpoint for nothing.
func (in *input) eventTypes(names []*string) []string {
	if names == nil {
		return nil
	}
	if len(names) == 0 {
		in.blame("/event_types", faultInvalid)
	}
	types := make([]string, 0, len(names))
	for i, name := range names {
		at := "/event_types/" + strconv.Itoa(i)
		switch {
		case name == nil:
			in.fail(errWrongType.at(at))
		case !slices.Contains(webhooks.Types(), webhooks.Type(*name)), slices.Contains(types, *name):
			in.blame(at, faultInvalid)
		default:
			types = append(types, *name)
		}
	}
	return types
}

// withSecret is an endpoint and the secret that it was given.
type withSecret struct {
	endpoint webhooks.Endpoint
	secret   webhooks.Secret
}

func (s *server) createEndpoint(ctx context.Context, n webhooks.NewEndpoint) (withSecret, error) {
	e, secret, err := s.outbox.Create(ctx, n)
	return withSecret{e, secret}, err
}

func showCreatedEndpoint(e withSecret) reply {
	rep := showSecret(e)
	rep.status, rep.location = http.StatusCreated, endpointsPath+"/"+e.endpoint.ID
	return rep
}

func showSecret(e withSecret) reply {
	return reply{status: http.StatusOK, body: &secretEndpoint{endpointOf(e.endpoint), e.secret.Text()}}
}

func showEndpoint(e webhooks.Endpoint) reply {
	return reply{status: http.StatusOK, body: new(endpointOf(e))}
}

// uuid is the path's id of that name.
func (in *input) uuid(name string) string {
	id, _ := in.x.match.param(name)
	in.blame("path:"+name, uuidFault(id))
	return id
}

func uuidFault(id string) string {
	if uuid.Validate(id) != nil || len(id) != len(uuid.Nil.String()) {
		return faultInvalid
	}
	return ""
}

// readEndpointKey reads what names an endpoint, for an act that needs no more; a body would be ignored, and is refused.
func readEndpointKey(in *input) webhooks.EndpointKey {
	return webhooks.EndpointKey{TenantID: in.tenant(), KeyID: in.x.principal.KeyID, EndpointID: in.uuid("endpoint_id")}
}

// endpointAct is readEndpointKey where a body may come that says nothing.
func readEndpointAct(in *input) webhooks.EndpointKey {
	k := readEndpointKey(in)
	optionalBody[struct{}](in)
	return k
}

// rotation asks for a new secret.
type rotation struct {
	webhooks.EndpointKey
	overlap time.Duration
}

func readRotation(in *input) rotation {
	r := rotation{readEndpointKey(in), webhooks.DefaultOverlap}
	b := optionalBody[struct {
		OverlapSeconds *integer `json:"overlap_seconds"`
	}](in)
	if n := b.OverlapSeconds; n != nil {
		most := int64(webhooks.MaxOverlap / time.Second)
		if n.value < 0 || n.value > most {
			in.blame("/overlap_seconds", faultOutOfRange)
		}
		r.overlap = time.Duration(min(max(n.value, 0), most)) * time.Second
	}
	return r
}

func (s *server) rotate(ctx context.Context, r rotation) (withSecret, error) {
	e, secret, err := s.outbox.Rotate(ctx, r.EndpointKey, r.overlap)
	return withSecret{e, secret}, err
}

// pageQuery asks for a page of what a tenant has.
type pageQuery struct {
	tenantID string
	page     operations.Page
}

func readEndpointQuery(in *input) pageQuery {
	return pageQuery{in.tenant(), in.page(in.query("limit", "cursor", "created_after", "created_before"))}
}

func (s *server) endpoints(ctx context.Context, q pageQuery) (listed[webhooks.Endpoint], error) {
	rows, next, err := s.outbox.Endpoints(ctx, q.tenantID, q.page)
	return listed[webhooks.Endpoint]{rows, next}, err
}

func showEndpoints(l listed[webhooks.Endpoint]) reply { return showList(l, endpointOf) }

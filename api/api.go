// Package api is refundd over HTTP: routes, one adapter, the wire's words, and one table of problems.
//
// Its promises: every request gets one answer, with a reference that its one log event carries too; every refusal is a
// problem (RFC 9457) that says whether the same operation may be retried and whether money moved, and never says `no`
// of an operation whose row was not read; a body is taken exactly as it was meant or refused, never rounded, folded or
// guessed; no text of an error, no secret and nothing of another tenant leaves the service.
//
// Choices where the design is silent. A request counts against its key's rate limit once the key is known, and is
// refused for it only after its values were found good. A path under /v1/refunds/ or /v1/authorizations/ names an
// operation even where no route matches it. An id that can not exist is invalid_request, not a 404. A query parameter
// that a route does not have is refused on every route but the public ones, where probes add what they like.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"refundd/access"
	"refundd/escalations"
	"refundd/operations"
	"refundd/reconcile"
	"refundd/webhooks"
)

// Config is what the API needs.
type Config struct {
	Engine         *operations.Engine
	Keys           *access.Keys
	Desk           *escalations.Desk
	History        *reconcile.History
	Outbox         *webhooks.Outbox
	Logger         *slog.Logger          // optional: without one, nothing is logged
	Registerer     prometheus.Registerer // optional: where the metrics go
	Tracer         trace.Tracer          // optional: without one, nothing is traced
	RequestTimeout time.Duration         // a request's deadline; default 30 s
	RateLimit      int                   // requests per minute and key; 0 sets no limit
	Ready          func(context.Context) error
	Events         map[string]EventReader // by provider: optional, without one its events are refused
}

const defaultRequestTimeout = 30 * time.Second

// server is a set of routes and what their exchanges share.
type server struct {
	engine  *operations.Engine
	keys    *access.Keys
	desk    *escalations.Desk
	history *reconcile.History
	outbox  *webhooks.Outbox
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer // nil: nothing is traced
	limiter *limiter     // nil: no limit
	ready   func(context.Context) error
	timeout time.Duration
	router  router

	eventReaders map[string]EventReader
}

// API is the handler of the public address.
type API struct{ *server }

// New makes the API, or reports every fault of its configuration.
func New(c Config) (API, error) {
	if err := c.faults(); err != nil {
		return API{}, err
	}
	m, err := newMetrics(c.Registerer)
	if err != nil {
		return API{}, err
	}
	s := &server{
		engine: c.Engine, keys: c.Keys, desk: c.Desk, history: c.History, outbox: c.Outbox,
		log: c.Logger, metrics: m, ready: c.Ready,
	}
	s.timeout, s.tracer, s.eventReaders = c.RequestTimeout, c.Tracer, c.Events
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.timeout == 0 {
		s.timeout = defaultRequestTimeout
	}
	if c.RateLimit > 0 {
		s.limiter = newLimiter(c.RateLimit)
	}
	s.router = newRouter(s.routes())
	return API{s}, nil
}

func (c Config) faults() error {
	var faults []error
	if c.Engine == nil {
		faults = append(faults, errors.New("api: no engine"))
	}
	if c.Keys == nil {
		faults = append(faults, errors.New("api: no keys"))
	}
	if c.Desk == nil {
		faults = append(faults, errors.New("api: no desk for requests and escalations"))
	}
	if c.History == nil {
		faults = append(faults, errors.New("api: no history of runs and audits"))
	}
	if c.Outbox == nil {
		faults = append(faults, errors.New("api: no outbox of events"))
	}
	if c.Ready == nil {
		faults = append(faults, errors.New("api: nothing tells whether the service is ready"))
	}
	if c.RequestTimeout < 0 {
		faults = append(faults, errors.New("api: the request timeout is negative"))
	}
	if c.RateLimit < 0 {
		faults = append(faults, errors.New("api: the rate limit is negative"))
	}
	return errors.Join(faults...)
}

// routes is the whole of the public address.
func (s *server) routes() []route {
	return []route{
		{http.MethodPut, "/v1/orders/{order_id}", access.OrdersWrite, namesNone,
			adapt(readRegistration, s.registerOrder, showRegistered)},
		{http.MethodGet, "/v1/orders/{order_id}", access.Read, namesNone,
			adapt(readOrderKey, s.order, showOrder)},
		{http.MethodGet, "/v1/orders", access.Read, namesNone,
			adapt(readCustomerQuery, s.findOrders, showOrders)},

		{http.MethodPut, "/v1/authorizations/{operation_id}", access.AuthorizationsWrite, namesOperation,
			adapt(readApproval, s.authorize, showApproved)},
		{http.MethodGet, "/v1/authorizations/{operation_id}", access.Read, namesOperation,
			adapt(readOperationKey, s.authorization, showAuthorization)},
		{http.MethodGet, "/v1/authorizations", access.Read, namesNone,
			adapt(readCaseKey, s.authorizationsOfCase, showAuthorizations)},
		{http.MethodPost, "/v1/authorizations/{operation_id}/revoke", access.AuthorizationsWrite, namesOperation,
			adapt(readRevocation, s.engine.Revoke, showAuthorization)},

		{http.MethodPost, refundsPath, access.RefundsWrite, namesOperation,
			adapt(readSubmission, s.engine.Submit, showReceipt)},
		{http.MethodGet, refundsPath, access.Read, namesNone,
			adapt(readRefundQuery, s.refunds, showRefunds)},
		{http.MethodGet, refundsPath + "/{operation_id}", access.Read, namesOperation,
			adapt(readOperationKey, s.refund, showRefund)},
		{http.MethodGet, refundsPath + "/{operation_id}/events", access.Read, namesOperation,
			adapt(readTimelineQuery, s.timeline, showTimeline)},
		{http.MethodPost, refundsPath + "/{operation_id}/reconcile", access.RefundsWrite, namesOperation,
			adapt(readReconciliation, s.reconcile, showRefund)},
		{http.MethodPost, refundsPath + "/{operation_id}/resolve", access.RefundsResolve, namesOperation,
			adapt(readResolution, s.engine.Resolve, showRefund)},

		{http.MethodGet, totalsPath + "/open", access.Read, namesNone,
			adapt(readTenant, s.engine.OpenTotals, showOpenTotals)},
		{http.MethodGet, totalsPath, access.Read, namesNone,
			adapt(readWindowQuery, s.totals, showBucketTotals)},
		{http.MethodGet, "/v1/reconciliation-runs", access.Read, namesNone,
			adapt(readPage, s.runs, showRuns)},
		{http.MethodGet, "/v1/audits", access.Read, namesNone,
			adapt(readPage, s.audits, showAudits)},
		{http.MethodGet, "/v1/me", access.Read, namesNone,
			adapt(readCaller, s.caller, showCaller)},

		{http.MethodPost, "/v1/webhooks/stripe", public, namesNone, s.events("stripe")},

		{http.MethodPost, "/v1/refund-requests", access.RefundsRequest, namesNone,
			adapt(readWish, s.decide, showDecision)},
		{http.MethodGet, escalationsPath, access.Read, namesNone,
			adapt(readEscalationQuery, s.escalations, showEscalations)},
		{http.MethodPost, escalationsPath, access.RefundsRequest, namesNone,
			adapt(readHandoff, s.handOver, showHandedOver)},
		{http.MethodGet, escalationsPath + "/{escalation_id}", access.Read, namesNone,
			adapt(readEscalationKey, s.escalation, showEscalation)},
		{http.MethodPost, escalationsPath + "/{escalation_id}/approve", access.AuthorizationsWrite, namesNone,
			adapt(readVerdict, s.desk.Approve, showEscalation)},
		{http.MethodPost, escalationsPath + "/{escalation_id}/decline", access.AuthorizationsWrite, namesNone,
			adapt(readVerdict, s.desk.Decline, showEscalation)},
		{http.MethodPost, escalationsPath + "/{escalation_id}/take", access.AuthorizationsWrite, namesNone,
			adapt(readTaking, s.take, showEscalation)},

		{http.MethodPost, endpointsPath, access.WebhooksWrite, namesNone,
			adapt(readNewEndpoint, s.createEndpoint, showCreatedEndpoint)},
		{http.MethodGet, endpointsPath, access.Read, namesNone,
			adapt(readEndpointQuery, s.endpoints, showEndpoints)},
		{http.MethodGet, endpointsPath + "/{endpoint_id}", access.Read, namesNone,
			adapt(readEndpointKey, s.outbox.Endpoint, showEndpoint)},
		{http.MethodDelete, endpointsPath + "/{endpoint_id}", access.WebhooksWrite, namesNone,
			adapt(readEndpointKey, s.outbox.Delete, showEndpoint)},
		{http.MethodPost, endpointsPath + "/{endpoint_id}/disable", access.WebhooksWrite, namesNone,
			adapt(readEndpointAct, s.outbox.Disable, showEndpoint)},
		{http.MethodPost, endpointsPath + "/{endpoint_id}/enable", access.WebhooksWrite, namesNone,
			adapt(readEndpointAct, s.outbox.Enable, showEndpoint)},
		{http.MethodPost, endpointsPath + "/{endpoint_id}/rotate", access.WebhooksWrite, namesNone,
			adapt(readRotation, s.rotate, showSecret)},
		{http.MethodGet, endpointsPath + "/{endpoint_id}/deliveries", access.Read, namesNone,
			adapt(readDeliveryQuery, s.deliveries, showDeliveries)},
		{http.MethodGet, "/v1/events", access.Read, namesNone,
			adapt(readEventQuery, s.told, showEvents)},
		{http.MethodGet, "/v1/events/{event_id}", access.Read, namesNone,
			adapt(readEventKey, s.event, showEvent)},
		{http.MethodPost, "/v1/events/{event_id}/redeliver", access.WebhooksWrite, namesNone,
			adapt(readRedelivery, s.outbox.Redeliver, showRedelivery)},

		{http.MethodGet, "/healthz", public, namesNone, healthz},
		{http.MethodGet, "/readyz", public, namesNone, s.readyz},
		{http.MethodGet, contractPath, public, namesNone, contract},
		{http.MethodGet, "/", public, namesNone, pointToContract},
	}
}

// ServeHTTP answers one request.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ref := uuid.Must(uuid.NewV7()).String()
	h := w.Header()
	h["Request-Id"] = []string{ref}
	h["Cache-Control"] = noStore
	x := &exchange{s: s, w: w, r: r, ref: ref, started: time.Now(), attempt: readAttempt(r.Header)}
	x.match = s.router.find(r)
	x.operationID = x.match.operationID()
	if s.tracer != nil {
		x.beginSpan()
		defer x.endSpan()
	}
	x.answer(x.run())
}

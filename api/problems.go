package api

import (
	"refundd/access"
	"refundd/escalations"
	"refundd/operations"
	"refundd/webhooks"
)

// Codes of problems that no sentinel of the engine's states.
const (
	codeMalformedRequest       = "malformed_request"
	codeIdempotencyKeyRequired = "idempotency_key_required"
	codeNotFound               = "not_found"
	codeMethodNotAllowed       = "method_not_allowed"
	codeRequestTooLarge        = "request_too_large"
	codeUnsupportedMediaType   = "unsupported_media_type"
	codeInvalidRequest         = "invalid_request"
	codeRateLimited            = "rate_limited"
	codeInternal               = "internal"
)

// Codes that a problem's members depend on.
const (
	codeOperationConflict = "operation_id_conflict"
	codeAlreadyExecuted   = "already_executed"
	codeDeclined          = "refund_declined"
	codeNeedsAttention    = "operation_needs_attention"
	codeDeadlineExceeded  = "deadline_exceeded"
	codeUnauthenticated   = "unauthenticated"
)

// What a caller does next.
const (
	nextRetry     = "retry_same_operation"
	nextWait      = "wait_then_get"
	nextFix       = "fix_request"
	nextAuthorize = "request_authorization"
	nextEscalate  = "escalate_to_human"
	nextNone      = "none"
)

// kind is what a code always says. moved holds once the operation's row was read; before that it is unknown.
type kind struct {
	status     int
	retryable  bool
	moved      operations.MoneyMoved
	next       string
	retryAfter int // seconds; 0: waiting does not help
	title      string
	detail     string // for a person
}

const (
	no      = operations.MovedNo
	unknown = operations.MovedUnknown
)

// kinds is the one table of problems.
var kinds = map[string]kind{
	codeMalformedRequest: {400, false, unknown, nextFix, 0, "Malformed request",
		"The request can not be read as the documented one."},
	codeIdempotencyKeyRequired: {400, false, unknown, nextFix, 0, "Operation id required",
		"Name the operation, by the member operation_id or the header Idempotency-Key."},
	"webhook_signature_invalid": {400, false, unknown, nextFix, 0, "Webhook signature invalid",
		"The event does not carry a signature of its provider, or one of another time."},
	codeUnauthenticated: {401, false, unknown, nextEscalate, 0, "Not authenticated",
		"The request carries no valid API key."},
	"forbidden": {403, false, unknown, nextEscalate, 0, "Forbidden",
		"The API key does not have the scope that this needs."},
	"order_not_found": {404, false, no, nextFix, 0, "Order not found",
		"There is no such order."},
	codeNotFound: {404, false, no, nextFix, 0, "Not found",
		"There is no such path, or nothing of that id."},
	"authorization_not_found": {404, false, no, nextAuthorize, 0, "Authorization not found",
		"Nobody approved this refund."},
	"refund_not_found": {404, true, unknown, nextRetry, 0, "Refund not found",
		"No refund holds this operation id yet."},
	codeMethodNotAllowed: {405, false, unknown, nextFix, 0, "Method not allowed",
		"This path does not have that method."},
	"operation_in_progress": {409, true, unknown, nextRetry, 1, "Operation in progress",
		"Another attempt of this operation is under way, or its traces may not show at the provider yet."},
	codeRequestTooLarge: {413, false, unknown, nextFix, 0, "Request too large",
		"The body is larger than 64 KiB."},
	codeUnsupportedMediaType: {415, false, unknown, nextFix, 0, "Unsupported media type",
		"The body must be application/json in UTF-8, without a content encoding."},
	codeInvalidRequest: {422, false, unknown, nextFix, 0, "Invalid request",
		"A required value is missing, or a value is out of its range; errors names each."},
	"too_many_matches": {422, false, unknown, nextFix, 0, "Too many matches",
		"More than 200 match; search for something narrower."},
	codeOperationConflict: {422, false, no, nextEscalate, 0, "Operation id conflict",
		"operation_id already used for a different refund"},
	"authorization_mismatch": {422, false, no, nextAuthorize, 0, "Authorization mismatch",
		"The approval is for another order, amount or currency."},
	"authorization_expired": {422, false, no, nextAuthorize, 0, "Authorization expired",
		"The approval has expired."},
	"authorization_revoked": {422, false, no, nextAuthorize, 0, "Authorization revoked",
		"The approval was withdrawn."},
	"amount_exceeds_refundable": {422, false, no, nextAuthorize, 0, "Amount exceeds refundable",
		"The order's refunds would exceed what was captured; refundable_cents is what is left."},
	"currency_mismatch": {422, false, no, nextFix, 0, "Currency mismatch",
		"The currency is not the order's."},
	"order_immutable": {422, false, no, nextFix, 0, "Order immutable",
		"An order's currency, provider and payment never change, and its capture never shrinks."},
	"payment_already_registered": {422, false, no, nextFix, 0, "Payment already registered",
		"The provider's payment belongs to another order."},
	codeAlreadyExecuted: {422, false, unknown, nextWait, 0, "Already executed",
		"A refund holds this operation id; its authorization can not be withdrawn any more."},
	codeDeclined: {422, false, no, nextAuthorize, 0, "Refund declined",
		"The refund failed for good; failure_code says why."},
	codeNeedsAttention: {422, false, unknown, nextEscalate, 0, "Operation needs attention",
		"Whether the money moved is not known; a person has to find out."},
	"provider_disagrees": {422, false, unknown, nextEscalate, 0, "Provider disagrees",
		"The provider's books say otherwise than this resolution; read the refund."},
	"resolution_conflict": {422, false, unknown, nextEscalate, 0, "Resolution conflict",
		"The refund does not wait for this resolution; read the refund."},
	"escalation_not_approvable": {422, false, no, nextEscalate, 0, "Escalation not approvable",
		"This decision does not fit the escalation: it is no open request, the order cannot cover it, " +
			"or the key is the requester's."},
	"too_many_webhook_endpoints": {422, false, no, nextFix, 0, "Too many webhook endpoints",
		"The tenant has as many webhook endpoints as it may have; delete one first."},
	codeRateLimited: {429, true, unknown, nextRetry, 1, "Rate limited",
		"The API key sent too many requests in this minute."},
	codeInternal: {500, true, unknown, nextRetry, 0, "Internal error",
		"Something went wrong in the service."},
	"overloaded": {503, true, unknown, nextRetry, 1, "Overloaded",
		"The service has more to do than it can take on."},
	"database_unavailable": {503, true, unknown, nextRetry, 1, "Database unavailable",
		"The database can not be reached, or could not do this in time."},
	"provider_unavailable": {503, true, no, nextRetry, 5, "Provider unavailable",
		"The order's payment provider is not available."},
	codeDeadlineExceeded: {504, true, unknown, nextWait, 0, "Deadline exceeded",
		"The time for this request ran out before its outcome was known."},
}

// sentinel is an error that other rooms state, and its problem.
type sentinel struct {
	err  error
	code string
}

// sentinels has a row for every exported error of operations, ledger and access; any other error is internal.
var sentinels = []sentinel{
	{operations.ErrOrderNotFound, "order_not_found"},
	{operations.ErrOrderIncomplete, codeInvalidRequest},
	{operations.ErrOrderImmutable, "order_immutable"},
	{operations.ErrPaymentAlreadyRegistered, "payment_already_registered"},
	{operations.ErrPaymentMismatch, codeInvalidRequest},
	{operations.ErrEventUnsigned, "webhook_signature_invalid"},
	{operations.ErrEventMalformed, codeMalformedRequest},

	{operations.ErrAuthorizationNotFound, "authorization_not_found"},
	{operations.ErrAuthorizationMismatch, "authorization_mismatch"},
	{operations.ErrAuthorizationExpired, "authorization_expired"},
	{operations.ErrAuthorizationRevoked, "authorization_revoked"},
	{operations.ErrAlreadyExecuted, codeAlreadyExecuted},

	{operations.ErrRefundNotFound, "refund_not_found"},
	{operations.ErrOperationConflict, codeOperationConflict},
	{operations.ErrCurrencyMismatch, "currency_mismatch"},
	{operations.ErrAmountExceedsRefundable, "amount_exceeds_refundable"},
	{operations.ErrInProgress, "operation_in_progress"},
	{operations.ErrDeclined, codeDeclined},
	{operations.ErrNeedsAttention, codeNeedsAttention},
	{operations.ErrProviderUnavailable, "provider_unavailable"},
	{operations.ErrResolutionConflict, "resolution_conflict"},
	{operations.ErrProviderDisagrees, "provider_disagrees"},

	{operations.ErrTooManyMatches, "too_many_matches"},
	{operations.ErrInvalidCursor, codeInvalidRequest},

	{escalations.ErrNotApprovable, "escalation_not_approvable"},
	{escalations.ErrNotFound, codeNotFound},

	{webhooks.ErrNotFound, codeNotFound},
	{webhooks.ErrTooManyEndpoints, "too_many_webhook_endpoints"},
	{webhooks.ErrURL, codeInvalidRequest},

	{operations.ErrOverloaded, "overloaded"},
	{operations.ErrDatabaseUnavailable, "database_unavailable"},
	{operations.ErrDeadlineExceeded, codeDeadlineExceeded},

	{access.ErrUnauthenticated, codeUnauthenticated},
	{access.ErrForbidden, "forbidden"},
	{access.ErrUnavailable, "database_unavailable"},
	// Of the commands that manage tenants and keys; no route meets them.
	{access.ErrInvalidScope, codeInternal},
	{access.ErrKeyNotFound, codeInternal},
	{access.ErrKeyEnded, codeInternal},
	{access.ErrInvalidLifetime, codeInternal},
	{access.ErrTenantExists, codeInternal},
	{access.ErrTenantNotFound, codeInternal},
	{access.ErrInvalidTenantID, codeInternal},
}

package api

import (
	"context"
	"net/http"

	"refundd/operations"
)

// approvalBody is what PUT of an authorization says.
type approvalBody struct {
	CaseID      *string            `json:"case_id"`
	OrderID     *string            `json:"order_id"`
	AmountCents *integer           `json:"amount_cents"`
	Currency    *string            `json:"currency"`
	Reason      *string            `json:"reason"`
	Metadata    map[string]*string `json:"metadata"`
	ApprovedBy  *string            `json:"approved_by"`
	ExpiresAt   *string            `json:"expires_at"`
}

// revocationBody is what a withdrawal may say.
type revocationBody struct {
	Reason    *string `json:"reason"`
	RevokedBy *string `json:"revoked_by"`
}

// authorization is an approval on the wire; every member is always present.
type authorization struct {
	OperationID string                        `json:"operation_id"`
	CaseID      string                        `json:"case_id"`
	OrderID     string                        `json:"order_id"`
	AmountCents int64                         `json:"amount_cents"`
	Currency    string                        `json:"currency"`
	Reason      *string                       `json:"reason"`
	Metadata    map[string]string             `json:"metadata"`
	ApprovedBy  string                        `json:"approved_by"`
	ExpiresAt   *timestamp                    `json:"expires_at"`
	CreatedAt   timestamp                     `json:"created_at"`
	State       operations.AuthorizationState `json:"state"`
	Refund      *refund                       `json:"refund"`
}

func authorizationOf(a operations.Authorization) authorization {
	shown := authorization{
		OperationID: a.OperationID, CaseID: a.CaseID, OrderID: a.OrderID, AmountCents: a.AmountCents, Currency: a.Currency,
		Reason: a.Reason, Metadata: a.Metadata, ApprovedBy: a.ApprovedBy, ExpiresAt: optionalTime(a.ExpiresAt),
		CreatedAt: timestamp(a.CreatedAt), State: a.State,
	}
	if a.Refund != nil {
		shown.Refund = new(refundOf(*a.Refund))
	}
	return shown
}

func readApproval(in *input) operations.Approval {
	id := in.operationID()
	b := body[approvalBody](in)
	return operations.Approval{
		TenantID:    in.tenant(),
		OperationID: id,
		CaseID:      in.requiredText("/case_id", b.CaseID, maxID),
		OrderID:     in.bodyOrderID(b.OrderID),
		AmountCents: in.amount(b.AmountCents),
		Currency:    in.currency(b.Currency),
		ApprovedBy:  in.requiredWords("/approved_by", b.ApprovedBy, maxName),
		Actor:       in.x.principal.KeyID,
		Reason:      in.reason(b.Reason),
		Metadata:    in.metadata(b.Metadata),
		ExpiresAt:   in.instant("/expires_at", b.ExpiresAt),
	}
}

// approved is a stored approval, and whether this call stored it.
type approved struct {
	authorization operations.Authorization
	created       bool
}

func (s *server) authorize(ctx context.Context, a operations.Approval) (approved, error) {
	stored, created, err := s.engine.Authorize(ctx, a)
	return approved{stored, created}, err
}

func showApproved(a approved) reply {
	rep := showAuthorization(a.authorization)
	if a.created {
		rep.status, rep.location = http.StatusCreated, "/v1/authorizations/"+a.authorization.OperationID
	}
	return rep
}

func (s *server) authorization(ctx context.Context, k operationKey) (operations.Authorization, error) {
	return s.engine.Authorization(ctx, k.tenantID, k.operationID)
}

func showAuthorization(a operations.Authorization) reply {
	return reply{status: http.StatusOK, body: new(authorizationOf(a))}
}

func readRevocation(in *input) operations.Revocation {
	id := in.operationID()
	b := optionalBody[revocationBody](in)
	return operations.Revocation{
		TenantID:    in.tenant(),
		OperationID: id,
		Reason:      in.reason(b.Reason),
		RevokedBy:   in.words("/revoked_by", b.RevokedBy, maxName),
		Actor:       in.x.principal.KeyID,
	}
}

// caseKey names a case of the caller's tenant.
type caseKey struct{ tenantID, caseID string }

func readCaseKey(in *input) caseKey {
	q := in.query("case_id")
	id, ok := q["case_id"]
	if !ok {
		in.missing("query:case_id")
		return caseKey{}
	}
	in.blame("query:case_id", textFault(id, maxID))
	return caseKey{in.tenant(), id}
}

func (s *server) authorizationsOfCase(ctx context.Context, k caseKey) ([]operations.Authorization, error) {
	return s.engine.AuthorizationsOfCase(ctx, k.tenantID, k.caseID)
}

func showAuthorizations(rows []operations.Authorization) reply {
	return showMatches(rows, authorizationOf)
}

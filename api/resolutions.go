package api

import (
	"context"

	"refundd/operations"
)

// maxEvidence is the longest evidence, in characters.
const maxEvidence = 4000

// reconciliationBody says nothing: it is an empty object, or left out.
type reconciliationBody struct{}

func readReconciliation(in *input) operationKey {
	key := readOperationKey(in)
	optionalBody[reconciliationBody](in)
	return key
}

// reconcile looks a refund up at its provider now. What it then knows is the answer, also where the provider does not.
func (s *server) reconcile(ctx context.Context, k operationKey) (operations.Operation, error) {
	return s.engine.Reconcile(ctx, k.tenantID, k.operationID)
}

// resolutionBody is a person's word on a refund that needs attention.
type resolutionBody struct {
	Outcome          *string `json:"outcome"`
	Evidence         *string `json:"evidence"`
	ProviderRefundID *string `json:"provider_refund_id"`
	Override         *bool   `json:"override"`
	ResolvedBy       *string `json:"resolved_by"`
}

// readResolution reads a decision. It is the API key's, whoever is named.
func readResolution(in *input) operations.Decision {
	key := readOperationKey(in)
	b := body[resolutionBody](in)
	return operations.Decision{
		TenantID:         key.tenantID,
		OperationID:      key.operationID,
		Succeeded:        in.resolvedAs(b.Outcome) == operations.StateSucceeded,
		Evidence:         in.requiredWords("/evidence", b.Evidence, maxEvidence),
		ProviderRefundID: in.words("/provider_refund_id", b.ProviderRefundID, maxID),
		Override:         b.Override != nil && *b.Override,
		Actor:            in.x.principal.KeyID,
		ResolvedBy:       in.words("/resolved_by", b.ResolvedBy, maxName),
	}
}

// resolvedAs is the state that a decision leads to.
func (in *input) resolvedAs(outcome *string) operations.State {
	if outcome == nil {
		in.blame("/outcome", faultRequired)
		return ""
	}
	state := operations.State(*outcome)
	if state != operations.StateSucceeded && state != operations.StateFailed {
		in.blame("/outcome", faultInvalid)
	}
	return state
}

package api

import (
	"context"

	"refundd/operations"
	"refundd/reconcile"
)

// run is a run of reconciliation on the wire: it counts the refunds of the whole service, and tells nothing else of
// them.
type run struct {
	RunID                string     `json:"run_id"`
	StartedAt            timestamp  `json:"started_at"`
	FinishedAt           *timestamp `json:"finished_at"`
	DryRun               bool       `json:"dry_run"`
	Result               string     `json:"result"`
	Claimed              int64      `json:"claimed"`
	Succeeded            int64      `json:"succeeded"`
	Failed               int64      `json:"failed"`
	Pending              int64      `json:"pending"`
	Resent               int64      `json:"resent"`
	NeedsAttention       int64      `json:"needs_attention"`
	StillUnknown         int64      `json:"still_unknown"`
	OldestUnknownSeconds int64      `json:"oldest_unknown_seconds"`
	Errors               int64      `json:"errors"`
	DurationMS           *int64     `json:"duration_ms"`
}

func runOf(r reconcile.Run) run {
	shown := run{
		RunID: r.RunID.String(), StartedAt: timestamp(r.StartedAt), FinishedAt: optionalTime(r.FinishedAt), DryRun: r.DryRun,
		Claimed: r.Claimed, Succeeded: r.Succeeded, Failed: r.Failed, Pending: r.Pending, Resent: r.Resent,
		NeedsAttention: r.NeedsAttention, StillUnknown: r.StillUnknown, OldestUnknownSeconds: r.OldestUnknownSeconds,
		Errors: r.Errors, DurationMS: r.DurationMS,
	}
	switch {
	case r.FinishedAt == nil:
		shown.Result = "unfinished"
	case r.Flawed:
		shown.Result = "failed"
	default:
		shown.Result = "success"
	}
	return shown
}

// audit is an audit of the books on the wire.
type audit struct {
	AuditID    string    `json:"audit_id"`
	StartedAt  timestamp `json:"started_at"`
	FinishedAt timestamp `json:"finished_at"`
	Operations int64     `json:"operations"`
	Transfers  int64     `json:"transfers"`
	Orders     int64     `json:"orders"`
	Lies       int64     `json:"lies"`
}

func auditOf(a reconcile.AuditRecord) audit {
	return audit{
		AuditID: a.AuditID.String(), StartedAt: timestamp(a.StartedAt), FinishedAt: timestamp(a.FinishedAt),
		Operations: a.Operations, Transfers: a.Transfers, Orders: a.Orders, Lies: a.Lies,
	}
}

func readPage(in *input) operations.Page {
	return in.page(in.query("limit", "cursor", "created_after", "created_before"))
}

func (s *server) runs(ctx context.Context, p operations.Page) (listed[reconcile.Run], error) {
	rows, next, err := s.history.Runs(ctx, p)
	return listed[reconcile.Run]{rows, next}, err
}

func showRuns(l listed[reconcile.Run]) reply { return showList(l, runOf) }

func (s *server) audits(ctx context.Context, p operations.Page) (listed[reconcile.AuditRecord], error) {
	rows, next, err := s.history.Audits(ctx, p)
	return listed[reconcile.AuditRecord]{rows, next}, err
}

func showAudits(l listed[reconcile.AuditRecord]) reply { return showList(l, auditOf) }

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/renameio/v2"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/reconcile"
)

type auditCmd struct {
	postgres.Database
	JSON        bool   `name:"json" help:"Print one JSON object."`
	MetricsFile string `placeholder:"FILE.prom" help:"Tell the result to Prometheus as well: a file for the node exporter's textfile collector."`
}

// auditReport is the report as JSON.
type auditReport struct {
	Operations int64      `json:"operations"`
	Transfers  int64      `json:"transfers"`
	Orders     int64      `json:"orders"`
	LieCount   int64      `json:"lie_count"`
	Lies       []auditLie `json:"lies"`
}

type auditLie struct {
	Rule        string `json:"rule"`
	TenantID    string `json:"tenant_id"`
	OrderID     string `json:"order_id"`
	OperationID string `json:"operation_id"`
	Detail      string `json:"detail"`
}

// Run proves the books and prints what contradicts them; that ends with fault.ErrFound.
func (a auditCmd) Run(ctx context.Context, c console) error {
	pool, err := a.Open(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	began := time.Now()
	report, err := reconcile.Audit(ctx, pool)
	if err != nil {
		return err
	}
	if err := reconcile.RecordAudit(ctx, pool, report, time.Since(began)); err != nil { // a standby can be audited, and keeps no record of it
		c.log.Warn("the audit is not kept in the database: the console does not know of it", "error", fault.Sentence(err))
	}
	if err := errors.Join(a.print(c, report), a.tell(report)); err != nil {
		return err
	}
	if report.LieCount > 0 {
		return fault.ErrFound
	}
	return nil
}

// tell writes the metrics file, whole or not at all.
func (a auditCmd) tell(r reconcile.Report) error {
	if a.MetricsFile == "" {
		return nil
	}
	text := fmt.Sprintf(`# HELP refundd_audit_lies What contradicts the books, by the last audit that came to its end.
# TYPE refundd_audit_lies gauge
refundd_audit_lies %d
# HELP refundd_audit_last_run_timestamp_seconds When that was, as Unix time.
# TYPE refundd_audit_last_run_timestamp_seconds gauge
refundd_audit_last_run_timestamp_seconds %d
`, r.LieCount, time.Now().Unix())
	if err := renameio.WriteFile(a.MetricsFile, []byte(text), 0o644); err != nil {
		return fault.New(err, "--metrics-file could not be written: %s", fault.Foreign(err))
	}
	return nil
}

func (a auditCmd) print(c console, r reconcile.Report) error {
	if a.JSON {
		out := auditReport{Operations: r.Operations, Transfers: r.Transfers, Orders: r.Orders, LieCount: r.LieCount, Lies: []auditLie{}}
		for _, l := range r.Lies {
			out.Lies = append(out.Lies, auditLie{string(l.Rule), l.TenantID, l.OrderID, l.OperationID, l.Detail})
		}
		return c.printJSON(out)
	}
	verdict := "the books balance"
	if r.LieCount > 0 {
		verdict = strconv.FormatInt(r.LieCount, 10) + " lies"
	}
	c.printf("%d operations, %d transfers, %d orders: %s\n", r.Operations, r.Transfers, r.Orders, verdict)
	for _, l := range r.Lies {
		c.printf("%s tenant=%s order=%s operation=%s: %s\n", l.Rule, orDash(l.TenantID), orDash(l.OrderID), orDash(l.OperationID), l.Detail)
	}
	if r.Truncated {
		c.printf("only the first %d are named\n", len(r.Lies))
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

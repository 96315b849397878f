package main

import (
	"context"
	"strconv"
	"time"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/reconcile"
)

type auditCmd struct {
	postgres.Database
	JSON bool `name:"json" help:"Print one JSON object."`
}

// auditReport is the report as JSON.
type auditReport struct {
	Operations int64      `json:"operations"`
	Transfers  int64      `json:"transfers"`
	Orders     int64      `json:"orders"`
	LieCount   int64      `json:"lie_count"`
	Lies       []auditLie `json:"lies"`

	UnprovenCount int64           `json:"unproven_count"` // paid on a person's word alone: no lie, and no exit code
	Unproven      []auditUnproven `json:"unproven"`
}

type auditUnproven struct {
	TenantID    string `json:"tenant_id"`
	OrderID     string `json:"order_id"`
	OperationID string `json:"operation_id"`
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
	// a standby can be audited, and keeps no record of it
	if err := reconcile.RecordAudit(ctx, pool, report, time.Since(began)); err != nil {
		c.log.Warn("the audit is not kept in the database: console and metrics do not know of it", "error",
			fault.Sentence(err))
	}
	if err := a.print(c, report); err != nil {
		return err
	}
	if report.LieCount > 0 {
		return fault.ErrFound
	}
	return nil
}

func (a auditCmd) print(c console, r reconcile.Report) error {
	if a.JSON {
		out := auditReport{
			Operations: r.Operations, Transfers: r.Transfers, Orders: r.Orders, LieCount: r.LieCount, Lies: []auditLie{},
			UnprovenCount: r.UnprovenCount, Unproven: []auditUnproven{},
		}
		for _, u := range r.Unproven {
			out.Unproven = append(out.Unproven, auditUnproven(u))
		}
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
		c.printf("%s tenant=%s order=%s operation=%s: %s\n", l.Rule, orDash(l.TenantID), orDash(l.OrderID),
			orDash(l.OperationID), l.Detail)
	}
	if r.Truncated {
		c.printf("only the first %d are named\n", len(r.Lies))
	}
	if r.UnprovenCount > 0 {
		c.printf("%d refunds stand as paid on a person's word alone, their providers showed none:\n", r.UnprovenCount)
	}
	for _, u := range r.Unproven {
		c.printf("unproven tenant=%s order=%s operation=%s\n", u.TenantID, u.OrderID, u.OperationID)
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

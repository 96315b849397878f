package reconcile

import (
	"fmt"

	"refundd/operations"
)

// maxChainShown bounds what a lie's detail quotes.
const maxChainShown = 200

// judge tells each rule that the entry breaks. Every transfer names both of its accounts, so that accounts sum up to
// zero whatever happened; what could be wrong is an operation's share of them, and that is fixed by its chain and its
// amount.
func (e *entry) judge(lie func(Rule, string)) {
	if !e.known {
		lie(RuleOrphanTransfer, fmt.Sprintf("%d transfers (%s) of %d %s", e.transfers, e.shownChain(), e.maxCents,
			e.maxCurrency))
		return
	}
	e.judgeChain(lie)
	e.judgeAmounts(lie)
	e.judgeOrder(lie)
}

func (e *entry) judgeChain(lie func(Rule, string)) {
	state := operations.State(e.state)
	legal := legalChain(state, e.provider != "")
	switch {
	case legal == nil:
		lie(RuleImpossibleState, fmt.Sprintf("state %q with provider %q", e.state, e.provider))
	case legal.MatchString(e.chain):
	case e.transfers == 0:
		lie(RuleMissingTransfer, fmt.Sprintf("%s, and no transfer", e.state))
	case payments(e.chain) > 1:
		lie(RuleMovedTwice, fmt.Sprintf("%s by: %s", e.state, e.shownChain()))
	default:
		lie(RuleIllegalChain, fmt.Sprintf("%s by: %s", e.state, e.shownChain()))
	}
	if e.transfers > 0 && (e.firstSeq != 1 || int64(e.lastSeq) != e.transfers) {
		lie(RuleTransferSeq, fmt.Sprintf("%d transfers, numbered %d to %d", e.transfers, e.firstSeq, e.lastSeq))
	}
}

func (e *entry) judgeAmounts(lie func(Rule, string)) {
	if e.amountCents <= 0 {
		lie(RuleNotPositiveAmount, fmt.Sprintf("an operation of %d", e.amountCents))
	}
	if e.transfers > 0 && (e.minCents != e.amountCents || e.maxCents != e.amountCents) {
		lie(RuleTransferAmount, fmt.Sprintf("an operation of %d, transfers of %d to %d", e.amountCents, e.minCents,
			e.maxCents))
	}
	if e.transfers > 0 && (e.minCurrency != e.currency || e.maxCurrency != e.currency) {
		lie(RuleTransferCurrency, fmt.Sprintf("an operation in %s, transfers in %s to %s", e.currency, e.minCurrency,
			e.maxCurrency))
	}
	if !e.accountsRight {
		lie(RuleTransferAccounts, "by: "+e.shownChain())
	}
	if want := operations.Fingerprint(e.orderID, e.amountCents); e.fingerprint != want {
		lie(RuleFingerprint, fmt.Sprintf("stored %.64s, computed %s", e.fingerprint, want))
	}
}

// judgeOrder compares an operation with its order. A withdrawn authorization moved nothing: what it asked for does not
// matter.
func (e *entry) judgeOrder(lie func(Rule, string)) {
	switch {
	case !e.orderKnown:
		lie(RuleOrderMissing, fmt.Sprintf("order %s does not exist", e.orderID))
		return
	case operations.State(e.state) == operations.StateRevoked:
		return
	}
	if state := operations.State(e.state); e.overCents > 0 && state == operations.StateNeedsAttention &&
		e.failureCode == operations.FailureOverRefund {
		lie(RuleOverRefund, fmt.Sprintf("the provider paid these %d %s, and %d beyond what was captured: a person decides",
			e.amountCents, e.currency, e.overCents))
	}
	if e.currency != e.orderCurrency {
		lie(RuleOrderCurrency, fmt.Sprintf("an operation in %s, an order in %s", e.currency, e.orderCurrency))
	}
	if e.provider != e.orderProvider {
		lie(RuleOrderProvider, fmt.Sprintf("an operation by provider %q, an order by %q", e.provider, e.orderProvider))
	}
}

func (e *entry) shownChain() string {
	if len(e.chain) > maxChainShown {
		return e.chain[:maxChainShown] + " …"
	}
	return e.chain
}

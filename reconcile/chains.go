package reconcile

import (
	"regexp"
	"strings"

	"refundd/operations"
)

// ended is the part of a chain that leaves no money held or paid: the provider declined, or paid and took it back.
// Proof that an ended refund was paid after all holds its money again, so that a chain may have several such parts.
const ended = `hold (?:release|settle reversal)`

var (
	refundChain  = regexp.MustCompile(`^refund$`)
	nothing      = regexp.MustCompile(`^$`)
	firstHold    = regexp.MustCompile(`^hold$`)
	heldChain    = regexp.MustCompile(`^(?:` + ended + ` )*hold$`)
	settledChain = regexp.MustCompile(`^(?:` + ended + ` )*hold settle$`)
	endedChain   = regexp.MustCompile(`^` + ended + `(?: ` + ended + `)*$`)
)

// legalChain returns the kinds of transfer, in order, that an operation's state allows; nil where the schema allows no
// such operation.
func legalChain(state operations.State, withProvider bool) *regexp.Regexp {
	switch state {
	case operations.StateRevoked:
		return nothing
	case operations.StateSucceeded:
		if !withProvider {
			return refundChain
		}
		return settledChain
	}
	if !withProvider {
		return nil // without a provider there is nothing to wait for and nothing to fail
	}
	switch state {
	case operations.StateReserved, operations.StatePending:
		return firstHold // a failed refund never returns to these
	case operations.StateFailed:
		return endedChain
	case operations.StateNeedsAttention:
		return heldChain
	}
	return nil
}

// payments counts how often a chain gave the money to the customer and did not take it back.
func payments(chain string) int {
	return strings.Count(chain, "refund") + strings.Count(chain, "settle") - strings.Count(chain, "reversal")
}

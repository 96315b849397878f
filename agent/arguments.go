package agent

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"refundd/client"
)

// arguments reads a tool's arguments strictly: an unknown, duplicate or differently cased one, a wrong type or a number
// with a fraction is refused, never guessed.
func arguments[In any](raw []byte) (In, *Result) {
	var in, none In
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err := json.Unmarshal(raw, &in, json.RejectUnknownMembers(true)); err != nil {
		where := ""
		if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
			where = string(semantic.JSONPointer)
		}
		return none, invalid(where)
	}
	if c, ok := any(in).(interface{ fault() string }); ok {
		if where := c.fault(); where != "" {
			return none, invalid(where)
		}
	}
	return in, nil
}

// invalid is the answer to arguments that are not those of the tool; where names one of them.
func invalid(where string) *Result {
	r := refusal(codeInvalidArguments, client.MoneyMovedUnknown, client.ActionFixRequest)
	if where != "" {
		r.Error = fmt.Sprintf("The argument %s is not as the tool describes it.", bounded(where, 80))
	}
	return &r
}

// bounded is text without control characters, cut after most characters.
func bounded(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most])
	}
	return s
}

// maxText is how long an id may be, in characters.
const maxText = 255

// missing returns the pointer of the first text that is empty or longer than an id may be; pairs of a pointer and a
// text.
func missing(pairs ...string) string { return outside(1, pairs) }

// longest returns the pointer of the first text that is longer than an id may be; pairs of a pointer and a text.
func longest(pairs ...string) string { return outside(0, pairs) }

func outside(least int, pairs []string) string {
	for i := 0; i < len(pairs); i += 2 {
		if n := utf8.RuneCountInString(pairs[i+1]); n < least || n > maxText {
			return pairs[i]
		}
	}
	return ""
}

type findOrdersArgs struct {
	OrderID       string `json:"order_id"`
	CustomerEmail string `json:"customer_email"`
	CustomerID    string `json:"customer_id"`
}

func (a findOrdersArgs) fault() string {
	if a.OrderID == "" && a.CustomerEmail == "" && a.CustomerID == "" {
		return "/order_id"
	}
	return longest("/order_id", a.OrderID, "/customer_email", a.CustomerEmail, "/customer_id", a.CustomerID)
}

// wishArgs are those of check_refund and request_refund.
type wishArgs struct {
	CaseID        string   `json:"case_id"`
	OrderID       string   `json:"order_id"`
	AmountCents   int64    `json:"amount_cents"`
	ReasonCode    string   `json:"reason_code"`
	AskedForHuman bool     `json:"asked_for_human"`
	Categories    []string `json:"categories"`
}

func (a wishArgs) fault() string {
	if a.AmountCents < 1 {
		return "/amount_cents"
	}
	return missing("/case_id", a.CaseID, "/order_id", a.OrderID, "/reason_code", a.ReasonCode)
}

// caseArgs are those of process_refund and get_refund.
type caseArgs struct {
	CaseID      string `json:"case_id"`
	OrderID     string `json:"order_id"`
	AmountCents *int64 `json:"amount_cents"`
	Line        *int   `json:"line"`
}

func (a caseArgs) fault() string {
	if where := missing("/case_id", a.CaseID); where != "" {
		return where
	}
	return longest("/order_id", a.OrderID)
}

type casesArgs struct {
	CaseIDs []string `json:"case_ids"`
}

// maxCases is how many cases one call may name.
const maxCases = 50

func (a casesArgs) fault() string {
	if len(a.CaseIDs) == 0 || len(a.CaseIDs) > maxCases {
		return "/case_ids"
	}
	for i, id := range a.CaseIDs {
		if where := missing(fmt.Sprintf("/case_ids/%d", i), id); where != "" {
			return where
		}
	}
	return ""
}

type handoffArgs struct {
	CaseID  string `json:"case_id"`
	OrderID string `json:"order_id"`
	Trigger string `json:"trigger"`
	Summary string `json:"summary"`
}

func (a handoffArgs) fault() string {
	if where := missing("/case_id", a.CaseID, "/trigger", a.Trigger); where != "" {
		return where
	}
	return longest("/order_id", a.OrderID)
}

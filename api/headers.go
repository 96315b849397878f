package api

import (
	"net/http"
	"strconv"
	"strings"
)

// attempt is how the caller labels its attempt.
type attempt struct {
	layer  string // one of the known layers, other, or empty
	number int    // 0 where none is said
}

// Headers of requests, spelled as net/http keeps them.
const (
	layerHeader  = "Refund-Attempt-Layer"
	numberHeader = "Refund-Attempt"
	keyHeader    = "Idempotency-Key"
)

// readAttempt never refuses: a label decides nothing.
func readAttempt(h http.Header) attempt {
	var a attempt
	if layers := h[layerHeader]; len(layers) > 0 {
		switch a.layer = layers[0]; a.layer {
		case "", "model_transport", "agent_loop", "tool_transport", "business":
		default:
			a.layer = "other"
		}
	}
	if numbers := h[numberHeader]; len(numbers) > 0 {
		if n, err := strconv.ParseInt(numbers[0], 10, 32); err == nil && n > 0 {
			a.number = int(n)
		}
	}
	return a
}

// label is the layer in metrics.
func (a attempt) label() string {
	if a.layer == "" {
		return "none"
	}
	return a.layer
}

// ordinal is the number in metrics: beyond most layers' limits it is not told apart.
func (a attempt) ordinal() string {
	switch {
	case a.number == 0:
		return "none"
	case a.number > 9:
		return "10_or_more"
	}
	return strconv.Itoa(a.number)
}

// idempotencyKey takes the operation id out of Idempotency-Key, bare or as a string of RFC 8941; the two name the same
// operation. It tells whether the header was sent at all.
func (in *input) idempotencyKey() (id string, sent bool) {
	values := in.x.r.Header[keyHeader]
	if len(values) == 0 {
		return "", false
	}
	if len(values) > 1 {
		in.blame("header:"+keyHeader, faultInvalid)
		return "", true
	}
	id = strings.Trim(values[0], " \t")
	if len(id) >= 2 && id[0] == '"' && id[len(id)-1] == '"' {
		id = id[1 : len(id)-1] // an escape is none of an operation id's characters
	}
	if code := operationIDFault(id); code != "" {
		in.blame("header:"+keyHeader, code)
		return "", true
	}
	return id, true
}

// namedOperation is the operation that header and body name; where both do, they must agree.
func (in *input) namedOperation(header string, sent bool, member *string) string {
	if member == nil {
		if !sent {
			in.fail(&rejection{code: codeIdempotencyKeyRequired, faults: []fault{{"/operation_id", faultRequired}}})
		}
		return header
	}
	if code := operationIDFault(*member); code != "" {
		in.blame("/operation_id", code)
		return header
	}
	if header != "" && header != *member {
		in.blame("header:"+keyHeader, faultMismatch)
		in.x.operationID = ""
		return ""
	}
	in.x.operationID = *member
	return *member
}

// Values of headers that many answers share; nobody changes them.
var (
	noStore   = []string{"no-store"}
	plainJSON = []string{"application/json"}
)

// describe sets a reply's own headers.
func (rep reply) describe(h http.Header) {
	h["Content-Type"] = plainJSON
	if rep.mediaType != "" {
		h["Content-Type"] = []string{rep.mediaType}
	}
	if rep.replayed {
		h["Idempotent-Replayed"] = []string{"true"}
	}
	if rep.location != "" {
		h["Location"] = []string{rep.location}
	}
	if rep.link != "" {
		h["Link"] = []string{rep.link}
	}
	if rep.retryAfter > 0 {
		h["Retry-After"] = []string{strconv.Itoa(rep.retryAfter)}
	}
}

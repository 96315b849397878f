package simulator

import (
	"errors"
	"io"
	"net/http"

	"github.com/go-json-experiment/json"
)

// strict refuses unknown members; duplicates, other letter case, fractions and trailing data are refused anyway.
var strict = json.JoinOptions(json.RejectUnknownMembers(true))

// maxBody is the longest request in bytes.
const maxBody = 64 << 10

// problem is an answer that is no refund. Its code is for machines; its message is a provider's, and may say anything.
type problem struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (p *problem) Error() string { return p.Code + ": " + p.Message }

func invalid(message string) error {
	return &problem{http.StatusUnprocessableEntity, "invalid_request", message}
}

var (
	errMalformed = &problem{http.StatusBadRequest, "malformed_request", "The body is not the documented JSON object."}
	errTooLarge  = &problem{http.StatusRequestEntityTooLarge, "request_too_large", "The body is too large."}
	errNoKey     = &problem{http.StatusBadRequest, "idempotency_key_required",
		"Idempotency-Key must have 1 to 255 printable ASCII characters."}
	errBusy  = &problem{http.StatusConflict, "idempotency_key_in_use", "A request with this key is running."}
	errReuse = &problem{http.StatusUnprocessableEntity, "idempotency_key_reuse",
		"The key was used with other parameters."}
	errBooks = &problem{http.StatusInternalServerError, "books_unavailable", "The books cannot be written."}
)

// readBody takes exactly one JSON object.
func readBody[T any](r *http.Request) (T, error) {
	var v T
	err := json.UnmarshalRead(io.LimitReader(r.Body, maxBody), &v, strict)
	switch {
	case err != nil && r.ContentLength > maxBody:
		return v, errTooLarge
	case err != nil:
		return v, errMalformed
	}
	return v, nil
}

// writeJSON answers v. A client that left is not told.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"code":"internal_error","message":""}`)
	}
	writeBytes(w, status, body)
}

func writeBytes(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeError answers a problem; what is none is the books' failure.
func writeError(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = errBooks
	}
	writeJSON(w, p.status, p)
}

package api

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"refundd/operations"
)

// maxBody is the largest body, in bytes.
const maxBody = 64 << 10

// body reads and decodes the one body that a route asks for.
func body[T any](in *input) T {
	var none T
	if err := jsonOnly(in.x.r.Header); err != nil {
		in.fail(err)
		return none
	}
	raw, err := readBody(in.x.r)
	if err != nil {
		in.fail(err)
		return none
	}
	return decoded[T](in, raw)
}

// optionalBody is body, or the zero T where nothing was sent.
func optionalBody[T any](in *input) T {
	var none T
	if in.x.r.ContentLength == 0 {
		return none
	}
	raw, tooLarge := readBody(in.x.r)
	if tooLarge == nil && len(raw) == 0 {
		return none
	}
	if err := jsonOnly(in.x.r.Header); err != nil {
		in.fail(err)
		return none
	}
	if tooLarge != nil {
		in.fail(tooLarge)
		return none
	}
	return decoded[T](in, raw)
}

func decoded[T any](in *input, raw []byte) T {
	v, err := decode[T](raw)
	if err != nil {
		in.fail(err)
	}
	return v
}

// jsonOnly refuses what is not plain application/json in UTF-8, which some clients spell utf8.
func jsonOnly(h http.Header) error {
	types := h["Content-Type"]
	if len(types) == 1 && types[0] == "application/json" && h["Content-Encoding"] == nil {
		return nil
	}
	refused := &rejection{code: codeUnsupportedMediaType}
	if len(types) != 1 || h["Content-Encoding"] != nil {
		return refused
	}
	media, params, err := mime.ParseMediaType(types[0])
	if err != nil || media != "application/json" {
		return refused
	}
	for name, value := range params {
		if name != "charset" || !strings.EqualFold(value, "utf-8") && !strings.EqualFold(value, "utf8") {
			return refused
		}
	}
	return nil
}

// usualBody is the size, in bytes, up to which room is made for a body that did not arrive yet.
const usualBody = 4 << 10

// readBody reads to the body's end, so that the server notices from then on when the connection closes.
func readBody(r *http.Request) ([]byte, error) { return readBodyUpTo(r, maxBody) }

// readBodyUpTo is readBody for bodies of up to most bytes.
func readBodyUpTo(r *http.Request, most int) ([]byte, error) {
	if r.ContentLength > int64(most) {
		return nil, &rejection{code: codeRequestTooLarge}
	}
	var raw []byte
	var err error
	if r.ContentLength >= 0 && r.ContentLength <= usualBody {
		raw = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, raw) // the server meets the body's end along with its last byte
	} else {
		raw, err = io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, operations.ErrDeadlineExceeded
	case err != nil:
		return nil, errTruncated.at("")
	case len(raw) > most:
		return nil, &rejection{code: codeRequestTooLarge}
	}
	return raw, nil
}

package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"refundd/operations"
)

// EventReader reads a provider's event from the body exactly as it came and its headers: where it hints, or
// operations.ErrEventUnsigned or operations.ErrEventMalformed.
type EventReader func(body []byte, h http.Header, now time.Time) (operations.Hint, error)

// maxEvent is the largest event, in bytes: a payment with all of its metadata fits several times.
const maxEvent = 256 << 10

// received is what an event is answered with. Whoever sends it reads nothing but the status; a person may.
type received struct {
	Result operations.Heeded `json:"result"`
}

// events takes what a provider announces. It needs no key: the signature tells whose it is.
func (s *server) events(provider string) endpoint {
	return func(ctx context.Context, x *exchange) (reply, error) {
		result, err := s.heed(ctx, x, provider)
		s.metrics.events.WithLabelValues(provider, eventLabel(result, err)).Inc()
		if err != nil {
			return reply{}, err
		}
		return reply{status: http.StatusOK, body: received{result}, outcome: string(result)}, nil
	}
}

func (s *server) heed(ctx context.Context, x *exchange, provider string) (operations.Heeded, error) {
	if err := jsonOnly(x.r.Header); err != nil {
		return "", err
	}
	body, err := readBodyUpTo(x.r, maxEvent)
	if refused, ok := errors.AsType[*rejection](err); ok && refused.code == codeRequestTooLarge {
		return "", &rejection{code: codeRequestTooLarge, detail: "The event is larger than 256 KiB."}
	}
	if err != nil {
		return "", err
	}
	read := s.eventReaders[provider]
	if read == nil {
		return "", operations.ErrProviderUnavailable // and to be sent again: it may be configured by then
	}
	hint, err := read(body, x.r.Header, time.Now())
	if err != nil {
		return "", err
	}
	return s.engine.Heed(ctx, provider, hint)
}

// eventLabel is what became of an event, in metrics.
func eventLabel(result operations.Heeded, err error) string {
	var refused *rejection
	switch {
	case err == nil:
		return string(result)
	case errors.As(err, &refused),
		errors.Is(err, operations.ErrEventUnsigned), errors.Is(err, operations.ErrEventMalformed):
		return "refused"
	}
	return "failed"
}

package webhooks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// message is an event on its way to an endpoint.
type message struct {
	url  string
	keys [][]byte // each of them signs
	id   string
	at   time.Time // of this attempt, by the database's clock
	body []byte
}

// attempt is what became of sending a message. An empty result tells that it was interrupted: nobody knows.
type attempt struct {
	result Result
	status int // 0 without an answer
}

// send posts a message once.
func (c *Courier) send(ctx context.Context, m message) attempt {
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	a := c.post(limited, m)
	if a.result != ResultDelivered && ctx.Err() != nil {
		return attempt{}
	}
	c.attempts.WithLabelValues(string(a.result)).Inc()
	return a
}

func (c *Courier) post(ctx context.Context, m message) attempt {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(m.body))
	if err != nil {
		return attempt{result: ResultFailed}
	}
	signature, err := signatures(m.keys, m.id, m.at, m.body)
	if err != nil {
		return attempt{result: ResultFailed}
	}
	r.Header = http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"refundd"},
		"Webhook-Id":        {m.id},
		"Webhook-Timestamp": {strconv.FormatInt(m.at.Unix(), 10)},
		"Webhook-Signature": {signature},
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return attempt{result: fault(ctx, err)}
	}
	defer func() { _ = answer.Body.Close() }()
	_, _ = io.CopyN(io.Discard, answer.Body, answerLimit) // to its end the connection serves again
	switch {
	case answer.StatusCode >= 200 && answer.StatusCode < 300:
		return attempt{ResultDelivered, answer.StatusCode}
	case answer.StatusCode == http.StatusGone:
		return attempt{ResultGone, answer.StatusCode}
	}
	return attempt{ResultRefused, answer.StatusCode}
}

// fault says why there is no answer.
func fault(ctx context.Context, err error) Result {
	switch {
	case errors.Is(err, errNotAllowed):
		return ResultNotAllowed
	case ctx.Err() != nil:
		return ResultTimeout
	}
	return ResultFailed
}

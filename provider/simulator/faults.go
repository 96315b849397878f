package simulator

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"refundd/operations"
)

// mode is a way to misbehave.
type mode string

// The modes. One request may meet several, at most one of each line; it consumes one count of each that it meets.
const (
	// Before the key is looked at; in this order.
	modeRefuse      mode = "refuse"       // 429 with Retry-After
	modeErrorBefore mode = "error_before" // 500, nothing executed, nothing stored
	modeDropBefore  mode = "drop_before"  // the connection is closed, nothing executed

	modeHang mode = "hang" // executes after delay_ms even if the client left, then answers

	// At the execution, which a replay has none of.
	modeDecline   mode = "decline"    // refused for good with code
	modePending   mode = "pending"    // accepted; succeeded after delay_ms
	modeFailLater mode = "fail_later" // as it would be, and failed delay_ms after that

	// After the execution, the decline or the replay, and after delay_ms in which the key stays busy.
	modeErrorAfter mode = "error_after" // 500
	modeDropAfter  mode = "drop_after"  // the connection is closed

	// On GET /refunds.
	modeLookupDown mode = "lookup_down" // 503
	modeLookupLag  mode = "lookup_lag"  // refunds younger than delay_ms are hidden
)

var modes = []mode{modeRefuse, modeErrorBefore, modeDropBefore, modeHang, modeDecline, modePending, modeFailLater,
	modeErrorAfter, modeDropAfter, modeLookupDown, modeLookupLag}

// fault is an active mode.
type fault struct {
	Mode    mode   `json:"mode"`
	Count   *int64 `json:"count"`    // requests still to meet it; null: all, until it is cleared
	DelayMS int64  `json:"delay_ms"` // of modes without a delay of their own: before the answer
	Code    string `json:"code"`     // of decline: its code; of fail_later: the failure's
	Status  int    `json:"status"`   // of the modes that answer an error
	Message string `json:"message"`  // a provider's words, which nobody may repeat
}

func (f *fault) delay() time.Duration { return time.Duration(f.DelayMS) * time.Millisecond }

// faults are the active ones, at most one of each mode. Each is replaced and never changed.
type faults struct {
	mu     sync.Mutex
	active map[mode]*fault
}

// take consumes one count of the first of modes that is active, and returns it; nil where none is.
func (f *faults) take(modes ...mode) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range modes {
		if a := f.active[m]; a != nil {
			f.consume(a)
			return a
		}
	}
	return nil
}

func (f *faults) consume(a *fault) {
	if a.Count == nil {
		return
	}
	left := *a.Count - 1
	rest := *a
	rest.Count = &left
	f.set(rest)
}

// set replaces the mode's fault. A count of 0 ends it.
func (f *faults) set(a fault) {
	delete(f.active, a.Mode)
	if a.Count == nil || *a.Count > 0 {
		f.active[a.Mode] = &a
	}
}

func (f *faults) post(a fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(a)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.active)
}

// list is the active faults in the order of modes.
func (f *faults) list() []fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]fault, 0, len(f.active))
	for _, m := range modes {
		if a := f.active[m]; a != nil {
			list = append(list, *a)
		}
	}
	return list
}

// maxDelay keeps a mistyped delay from waiting past every test's end: 30 days.
const maxDelay = 30 * 24 * time.Hour

// checked fills in what the request left out.
func (f fault) checked() (fault, error) {
	switch {
	case !slices.Contains(modes, f.Mode):
		return f, invalid("mode is unknown")
	case f.Count != nil && *f.Count < 0:
		return f, invalid("count is negative")
	case f.DelayMS < 0 || f.DelayMS > maxDelay.Milliseconds():
		return f, invalid("delay_ms is out of range")
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return f, invalid("status is not an error's")
	}
	if f.Status == 0 {
		f.Status = f.Mode.status()
	}
	if f.Code == "" {
		f.Code = f.Mode.code()
	}
	return f, nil
}

// status is what m answers unless the fault says otherwise.
func (m mode) status() int {
	switch m {
	case modeRefuse:
		return http.StatusTooManyRequests
	case modeDecline:
		return http.StatusPaymentRequired
	case modeLookupDown:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// code is what m says unless the fault says otherwise.
func (m mode) code() string {
	switch m {
	case modeRefuse:
		return "rate_limited"
	case modeDecline:
		return operations.DeclineDeclined
	case modeFailLater:
		return operations.DeclineExpiredCard
	default:
		return "internal_error"
	}
}

type faultsBody struct {
	Faults []fault `json:"faults"`
}

// postFault makes a mode active, in the place of the same mode's fault before it.
func (s *Server) postFault(w http.ResponseWriter, r *http.Request) {
	body, err := readBody[fault](r)
	if err == nil {
		body, err = body.checked()
	}
	if err != nil {
		writeError(w, err)
		return
	}
	s.faults.post(body)
	s.getFaults(w, r)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, faultsBody{Faults: s.faults.list()})
}

func (s *Server) deleteFaults(w http.ResponseWriter, r *http.Request) {
	s.faults.clear()
	s.getFaults(w, r)
}

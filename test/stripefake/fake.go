// Package stripefake behaves like Stripe's API where it gives money back, as https://docs.stripe.com/api documents it:
// a stateful server for tests. It is written from that documentation alone and shares nothing with what it tests, not
// even a constant.
//
// It has a clock of its own, which tests move: idempotency keys are forgotten after 24 hours, listings lag. The first
// answer of a key is stored, also where it is an error, 500 included; a request with other parameters under a known
// key, or beside one that runs, is refused. Faults drop connections, hang, and answer 429 or 5xx, before or after a
// refund was made.
package stripefake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Payment is a payment intent with its one charge.
type Payment struct {
	ID       string // pi_…
	Charge   string // ch_…
	Account  string // acct_…; "" is the platform's own
	Currency string // as Stripe writes it: lower case
	Amount   int64  // that was asked for, in Stripe's unit
	Captured int64
	Live     bool
	Disputed bool
}

// Refund is a refund as the books have it.
type Refund struct {
	ID       string
	Payment  string // pi_…
	Charge   string
	Account  string
	Amount   int64
	Currency string
	Status   string
	Reason   string // of a failure
	Metadata map[string]string
	Key      string
	Created  time.Time
	turns    time.Time // when it becomes what it turns into, where it does
	turnsTo  string
}

// stored is what a key has brought about.
type stored struct {
	params  string
	running bool
	status  int
	body    []byte
	at      time.Time
}

// Fault is what happens to requests.
type Fault struct {
	On string // "POST" or "GET"
	// drop_before, drop_after, hang_before, hang_after, status_before, status_after, garbage; slow, stored, decline
	Do     string
	Status int           // of status_before and status_after
	Code   string        // of their error
	Type   string        // of their error
	Wait   time.Duration // before it happens
	Retry  time.Duration // of Retry-After
	Times  int
}

// Fake is a Stripe. Its zero value is not ready: use New.
type Fake struct {
	*httptest.Server
	mu       sync.Mutex
	keys     map[string]string // API keys and their accounts' mode: "live" or "test"
	payments map[string]*Payment
	refunds  []*Refund
	stored   map[string]*stored
	faults   []*Fault
	ahead    time.Duration // of the real clock
	lag      time.Duration // until a listing shows a refund
	status   string        // of new refunds
	turnsTo  string        // what they become
	turnsIn  time.Duration
	perKey   map[string]int // requests for refunds
	page     int            // the largest page; 100 at Stripe
	seq      int
	requests []string
}

// New starts a Stripe that knows one API key of test mode and one of live mode.
func New() *Fake {
	f := &Fake{
		keys:     map[string]string{"sk_test_fake": "test", "rk_live_fake": "live"},
		payments: map[string]*Payment{}, stored: map[string]*stored{}, perKey: map[string]int{}, status: "succeeded", page: 100,
	}
	f.Server = httptest.NewServer(f)
	return f
}

// Stop ends the server as a crash would; Again starts it where it was, with the same books.
func (f *Fake) Stop() {
	f.CloseClientConnections()
	f.Close()
}

// Again starts it again. See Stop.
func (f *Fake) Again() error {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", strings.TrimPrefix(f.URL, "http://"))
	if err != nil {
		return err
	}
	//nolint:gosec // on loopback, for a test
	f.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: f}}
	f.Start()
	return nil
}

// Pay adds a payment in test mode, of which all was captured, and answers its intent's name.
func (f *Fake) Pay(currency string, amount int64) string {
	return f.Add(Payment{Currency: currency, Amount: amount, Captured: amount})
}

// Add adds a payment, and answers its intent's name.
func (f *Fake) Add(p Payment) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seq++
	if p.ID == "" {
		p.ID = fmt.Sprintf("pi_%06d%d", f.seq, time.Now().UnixNano()%1e9)
	}
	if p.Charge == "" {
		p.Charge = "ch_" + p.ID[len("pi_"):]
	}
	f.payments[p.ID] = &p
	return p.ID
}

// Change changes a payment.
func (f *Fake) Change(id string, change func(*Payment)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.payments[id])
}

// Fail makes a fault happen to the next requests that it is for.
func (f *Fake) Fail(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault)
}

// Clear ends the faults of a kind.
func (f *Fake) Clear(do string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = slices.DeleteFunc(f.faults, func(x *Fault) bool { return x.Do == do })
}

// Let makes an API key known, of live or of test mode.
func (f *Fake) Let(key, mode string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys[key] = mode
}

// Heal ends all faults.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// Set says of what status new refunds are, how long listings lag, and how long a page is at most.
func (f *Fake) Set(status string, lag time.Duration, page int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.lag, f.page, f.turnsTo = status, lag, page, ""
}

// Turn says that new refunds are of one status first and become of another after a while.
func (f *Fake) Turn(first, then string, in time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.turnsTo, f.turnsIn = first, then, in
}

// Lag says for how long listings lack a refund.
func (f *Fake) Lag(lag time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = lag
}

// Forget forgets a key, whatever the account.
func (f *Fake) Forget(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.stored {
		if strings.HasSuffix(id, "\x00"+key) {
			delete(f.stored, id)
		}
	}
}

// PerKey is how many requests for refunds carried each key.
func (f *Fake) PerKey() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.perKey)
}

// Later moves the clock on.
func (f *Fake) Later(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += d
}

func (f *Fake) now() time.Time { return time.Now().Add(f.ahead) }

// Refunds are all that there are, oldest first.
func (f *Fake) Refunds() []Refund {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn()
	all := make([]Refund, len(f.refunds))
	for i, r := range f.refunds {
		all[i] = *r
	}
	return all
}

// Of are the refunds that bear an operation's marks.
func (f *Fake) Of(tenant, operation string) []Refund {
	return slices.DeleteFunc(f.Refunds(), func(r Refund) bool {
		return r.Metadata["tenant_id"] != tenant || r.Metadata["operation_id"] != operation
	})
}

// Requests are the requests that came, as "POST /v1/refunds".
func (f *Fake) Requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Dashboard makes a refund as a person would, beside whoever calls the API.
func (f *Fake) Dashboard(payment string, amount int64, metadata map[string]string) Refund {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.make(f.payments[payment], amount, metadata, "")
}

// Settle gives a refund its status and, where it failed, its reason.
func (f *Fake) Settle(id, status, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.refunds {
		if r.ID == id {
			r.Status, r.Reason = status, reason
		}
	}
}

func (f *Fake) make(p *Payment, amount int64, metadata map[string]string, key string) *Refund {
	f.seq++
	r := &Refund{
		ID: fmt.Sprintf("re_%08d",
			f.seq), Payment: p.ID, Charge: p.Charge, Account: p.Account, Amount: amount, Currency: p.Currency,
		Status: f.status, Metadata: metadata, Key: key, Created: f.now(),
	}
	if f.turnsTo != "" {
		r.turns, r.turnsTo = f.now().Add(f.turnsIn), f.turnsTo
	}
	f.refunds = append(f.refunds, r)
	return r
}

// turn lets refunds become what they turn into.
func (f *Fake) turn() {
	for _, r := range f.refunds {
		if r.turnsTo != "" && !f.now().Before(r.turns) {
			r.Status, r.turnsTo = r.turnsTo, ""
		}
	}
}

// given is what was refunded of a payment and did not come back.
func (f *Fake) given(p *Payment) (sum int64) {
	for _, r := range f.refunds {
		if r.Payment == p.ID && r.Status != "failed" && r.Status != "canceled" {
			sum += r.Amount
		}
	}
	return sum
}

// failed is Stripe's error on the wire.
type failed struct {
	status                     int
	kind, code, param, message string
}

func (e failed) body() []byte {
	said := map[string]any{"type": e.kind, "message": e.message}
	for name, value := range map[string]string{"code": e.code, "param": e.param} {
		if value != "" {
			said[name] = value
		}
	}
	b, _ := json.Marshal(map[string]any{"error": said}) //nolint:errchkjson // texts alone
	return b
}

func missing(what, param, id string) failed {
	return failed{http.StatusNotFound, "invalid_request_error", "resource_missing", param, "No such " + what + ": '" +
		id + "'"}
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	if r.Method == http.MethodPost {
		f.perKey[r.Header.Get("Idempotency-Key")]++
	}
	f.seq++
	w.Header().Set("Request-Id", fmt.Sprintf("req_%08d", f.seq))
	fault := f.fault(r.Method)
	f.mu.Unlock()
	if !fault.before(w, r) {
		return
	}
	status, body := f.answer(r)
	if !fault.after(w) {
		return
	}
	write(w, status, body)
}

func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// fault is the one that happens to a request; the zero fault where none does.
func (f *Fake) fault(method string) Fault {
	for _, x := range f.faults {
		if x.On == method && x.Times > 0 && x.Do != "slow" && x.Do != "stored" && x.Do != "decline" {
			x.Times--
			return *x
		}
	}
	return Fault{}
}

func (x Fault) before(w http.ResponseWriter, r *http.Request) bool {
	if strings.HasSuffix(x.Do, "_before") {
		select {
		case <-time.After(x.Wait):
		case <-r.Context().Done():
		}
	}
	switch x.Do {
	case "drop_before":
		panic(http.ErrAbortHandler)
	case "status_before":
		x.write(w)
		return false
	case "garbage":
		write(w, http.StatusOK, []byte(`{"object":"refund","id":`))
		return false
	}
	return true
}

func (x Fault) after(w http.ResponseWriter) bool {
	if strings.HasSuffix(x.Do, "_after") {
		time.Sleep(x.Wait)
	}
	switch x.Do {
	case "drop_after":
		panic(http.ErrAbortHandler)
	case "status_after":
		x.write(w)
		return false
	}
	return true
}

func (x Fault) write(w http.ResponseWriter) {
	if x.Retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(x.Retry.Seconds())))
	}
	kind := x.Type
	if kind == "" {
		kind = "api_error"
	}
	write(w, x.Status, failed{x.Status, kind, x.Code, "", "Something went wrong on Stripe's end."}.body())
}

// caller is who asks: the mode of its key, and the account that it asks for.
type caller struct {
	live    bool
	account string
}

func (f *Fake) answer(r *http.Request) (int, []byte) {
	f.mu.Lock()
	mode, known := f.keys[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	f.mu.Unlock()
	if !known {
		e := failed{http.StatusUnauthorized, "invalid_request_error", "", "", "Invalid API Key provided"}
		return e.status, e.body()
	}
	c := caller{mode == "live", r.Header.Get("Stripe-Account")}
	if c.account != "" && !f.hasAccount(c.account) {
		e := failed{http.StatusForbidden, "invalid_request_error", "account_invalid", "",
			"The provided key does not have access to account"}
		return e.status, e.body()
	}
	if r.Method == http.MethodPost {
		return f.post(c, r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn()
	return f.get(c, r.URL)
}

func (f *Fake) hasAccount(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.payments {
		if p.Account == id {
			return true
		}
	}
	return false
}

// post does what was not done under the key before.
func (f *Fake) post(c caller, r *http.Request) (int, []byte) {
	key := r.Header.Get("Idempotency-Key")
	_ = r.ParseForm() // what can not be read has no parameters
	id, params := fmt.Sprint(c.account, c.live)+"\x00"+key, r.URL.Path+"?"+r.PostForm.Encode()
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.stored {
		if !s.running && f.now().Sub(s.at) >= 24*time.Hour {
			delete(f.stored, name)
		}
	}
	if s := f.stored[id]; s != nil && key != "" {
		switch {
		case s.running:
			e := failed{http.StatusConflict, "idempotency_error", "idempotency_key_in_use", "",
				"There is currently another in-progress request"}
			return e.status, e.body()
		case s.params != params:
			e := failed{http.StatusBadRequest, "idempotency_error", "", "",
				"Keys for idempotent requests can only be used with the same parameters"}
			return e.status, e.body()
		}
		return s.status, s.body
	}
	s := &stored{params: params, running: true, at: f.now()}
	f.stored[id] = s
	if fault := f.take("slow"); fault != nil { // the key is taken meanwhile
		f.mu.Unlock()
		time.Sleep(fault.Wait)
		f.mu.Lock()
	}
	f.turn()
	s.status, s.body = f.refund(c, r.PostForm, key)
	if fault := f.take("stored"); fault != nil { // an error that is stored, though the refund was made

		s.status, s.body = fault.Status, failed{fault.Status, "api_error", "", "", "An error occurred"}.body()
	}
	s.running = false
	return s.status, s.body
}

// take takes a fault of a kind; nil where there is none.
func (f *Fake) take(do string) *Fault {
	for _, x := range f.faults {
		if x.Do == do && x.Times > 0 {
			x.Times--
			return x
		}
	}
	return nil
}

// refund makes a refund, or says why not.
func (f *Fake) refund(c caller, q url.Values, key string) (int, []byte) {
	p, e := f.payment(c, q)
	if p == nil {
		return e.status, e.body()
	}
	for name := range q {
		if name != "amount" && name != "charge" && name != "payment_intent" && !strings.HasPrefix(name, "metadata[") {
			e := failed{http.StatusBadRequest, "invalid_request_error", "parameter_unknown", name,
				"Received unknown parameter: " + name}
			return e.status, e.body()
		}
	}
	if fault := f.take("decline"); fault != nil {
		e = failed{http.StatusBadRequest, "invalid_request_error", fault.Code, "", "Declined."}
		return e.status, e.body()
	}
	left := p.Captured - f.given(p)
	amount, err := strconv.ParseInt(q.Get("amount"), 10, 64)
	switch {
	case err != nil || amount < 1:
		e = failed{http.StatusBadRequest, "invalid_request_error", "parameter_invalid_integer", "amount",
			"Invalid positive integer"}
	case p.Disputed:
		e = failed{http.StatusBadRequest, "invalid_request_error", "charge_disputed", "", "Charge " + p.Charge +
			" has been charged back"}
	case p.Captured == 0:
		e = failed{http.StatusBadRequest, "invalid_request_error", "payment_intent_unexpected_state", "",
			"This PaymentIntent does not have a successful charge to refund."}
	case left == 0:
		e = failed{http.StatusBadRequest, "invalid_request_error", "charge_already_refunded", "", "Charge " + p.Charge +
			" has already been refunded."}
	case amount > left:
		e = failed{http.StatusBadRequest, "invalid_request_error", "", "amount",
			fmt.Sprintf("Refund amount (%d) is greater than unrefunded amount on charge (%d)", amount, left)}
	case (p.Currency == "isk" || p.Currency == "ugx") && amount%100 != 0:
		e = failed{http.StatusBadRequest, "invalid_request_error", "invalid_charge_amount_no_decimal_compatible",
			"amount", "Invalid amount."}
	case (p.Currency == "kwd" || p.Currency == "bhd") && amount%10 != 0:
		e = failed{http.StatusBadRequest, "invalid_request_error", "", "amount",
			"Invalid amount: the last digit must be 0."}
	default:
		metadata := map[string]string{}
		for name, values := range q {
			if m, ok := strings.CutPrefix(name, "metadata["); ok {
				metadata[strings.TrimSuffix(m, "]")] = values[0]
			}
		}
		return http.StatusOK, f.make(p, amount, metadata, key).json()
	}
	return e.status, e.body()
}

// payment is the one that is asked for, in the caller's mode and account.
func (f *Fake) payment(c caller, q url.Values) (*Payment, failed) {
	for _, p := range f.payments {
		if (p.ID == q.Get("payment_intent") || p.Charge == q.Get("charge")) && p.Account == c.account &&
			p.Live == c.live {
			return p, failed{}
		}
	}
	if q.Has("charge") {
		return nil, missing("charge", "charge", q.Get("charge"))
	}
	return nil, missing("payment_intent", "payment_intent", q.Get("payment_intent"))
}

func (f *Fake) get(c caller, u *url.URL) (int, []byte) {
	name := u.Path[strings.LastIndex(u.Path, "/")+1:]
	switch {
	case u.Path == "/v1/refunds":
		return f.list(c, u.Query())
	case strings.HasPrefix(u.Path, "/v1/refunds/"):
		for _, r := range f.refunds {
			if r.ID == name && r.Account == c.account && f.payments[r.Payment].Live == c.live {
				return http.StatusOK, r.json()
			}
		}
		e := missing("refund", "id", name)
		return e.status, e.body()
	case strings.HasPrefix(u.Path, "/v1/payment_intents/"):
		p, e := f.payment(c, url.Values{"payment_intent": {name}})
		if p == nil {
			return e.status, e.body()
		}
		return http.StatusOK, p.intent()
	case strings.HasPrefix(u.Path, "/v1/charges/"):
		p, e := f.payment(c, url.Values{"charge": {name}})
		if p == nil {
			return e.status, e.body()
		}
		return http.StatusOK, p.charge()
	}
	e := failed{http.StatusNotFound, "invalid_request_error", "", "", "Unrecognized request URL"}
	return e.status, e.body()
}

// list lists refunds, the newest first, a page at a time.
func (f *Fake) list(c caller, q url.Values) (int, []byte) {
	p, e := f.payment(c, q)
	if p == nil {
		return e.status, e.body()
	}
	limit := 10
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = n
	}
	limit = min(limit, f.page)
	data, begun, more := []json.RawMessage{}, !q.Has("starting_after"), false
	for _, r := range slices.Backward(f.refunds) {
		switch {
		case r.Payment != p.ID || f.now().Sub(r.Created) < f.lag:
		case !begun:
			begun = r.ID == q.Get("starting_after")
		case len(data) == limit:
			more = true
		default:
			data = append(data, r.json())
		}
	}
	//nolint:errchkjson // all JSON
	b, _ := json.Marshal(map[string]any{"object": "list", "url": "/v1/refunds", "has_more": more, "data": data})
	return http.StatusOK, b
}

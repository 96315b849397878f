package blackbox

// world is what refundd should be, in memory: orders, approvals and claimed keys of one tenant.
type world struct {
	requires  bool // authorizations are required
	orders    map[string]bookkeeping
	approvals map[string]approval
	claims    map[string]claim
}

// bookkeeping is an order's money in cents.
type bookkeeping struct{ captured, refunded int64 }

type approval struct {
	order   string
	cents   int64
	expired bool
}

// claim is a key that was used up, by a refund or by a revocation.
type claim struct {
	revoked bool
	order   string
	cents   int64
}

// act is one request.
type act struct {
	Kind  string // register, approve, revoke, refund
	Key   string
	Order string
	Cents int64
}

func newWorld(requires bool) *world {
	return &world{requires, map[string]bookkeeping{}, map[string]approval{}, map[string]claim{}}
}

func (w *world) clone() *world {
	c := newWorld(w.requires)
	for k, v := range w.orders {
		c.orders[k] = v
	}
	for k, v := range w.approvals {
		c.approvals[k] = v
	}
	for k, v := range w.claims {
		c.claims[k] = v
	}
	return c
}

// do changes the world as the act should and answers what it should say.
func (w *world) do(a act) string {
	switch a.Kind {
	case "register":
		return w.register(a)
	case "approve":
		return w.approve(a)
	case "revoke":
		return w.revoke(a)
	default:
		return w.refund(a)
	}
}

func (w *world) register(a act) string {
	known, ok := w.orders[a.Order]
	switch {
	case !ok:
		w.orders[a.Order] = bookkeeping{captured: a.Cents}
		return "201"
	case a.Cents < known.captured:
		return "order_immutable"
	}
	known.captured = a.Cents
	w.orders[a.Order] = known
	return "200"
}

func (w *world) approve(a act) string {
	claimed, isClaimed := w.claims[a.Key]
	approved, isApproved := w.approvals[a.Key]
	_, isOrder := w.orders[a.Order]
	switch {
	case isClaimed && claimed.revoked:
		return "authorization_revoked"
	case isClaimed && (claimed.order != a.Order || claimed.cents != a.Cents):
		return "operation_id_conflict"
	case isApproved && (approved.order != a.Order || approved.cents != a.Cents || approved.expired):
		return "operation_id_conflict" // an approval that expires is another one than an approval that does not
	case isApproved:
		return "200"
	case !isOrder:
		return "order_not_found"
	}
	w.approvals[a.Key] = approval{order: a.Order, cents: a.Cents}
	return "201"
}

func (w *world) revoke(a act) string {
	claimed, isClaimed := w.claims[a.Key]
	_, isApproved := w.approvals[a.Key]
	switch {
	case isClaimed && !claimed.revoked:
		return "already_executed"
	case !isApproved:
		return "authorization_not_found"
	}
	w.claims[a.Key] = claim{revoked: true}
	return "200"
}

func (w *world) refund(a act) string {
	if claimed, ok := w.claims[a.Key]; ok {
		switch {
		case claimed.revoked:
			return "authorization_revoked"
		case claimed.order != a.Order || claimed.cents != a.Cents:
			return "operation_id_conflict"
		}
		return "already_processed"
	}
	order, isOrder := w.orders[a.Order]
	approved, isApproved := w.approvals[a.Key]
	switch {
	case !isOrder:
		return "order_not_found"
	case !isApproved && w.requires:
		return "authorization_not_found"
	case isApproved && approved.expired:
		return "authorization_expired"
	case isApproved && (approved.order != a.Order || approved.cents != a.Cents):
		return "authorization_mismatch"
	case order.refunded+a.Cents > order.captured:
		return "amount_exceeds_refundable"
	}
	order.refunded += a.Cents
	w.orders[a.Order] = order
	w.claims[a.Key] = claim{order: a.Order, cents: a.Cents}
	return "processed"
}

// explains finds an order of the acts in which they would have said what they said, and answers the world after it, or
// nil.
func (w *world) explains(acts []act, said []string, done int) *world {
	if done == 1<<len(acts)-1 {
		return w
	}
	for i := range acts {
		if done&(1<<i) != 0 {
			continue
		}
		next := w.clone()
		if next.do(acts[i]) != said[i] && !next.isApprovedTooLate(acts[i], said[i]) {
			continue
		}
		if end := next.explains(acts, said, done|1<<i); end != nil {
			return end
		}
	}
	return nil
}

// isApprovedTooLate accepts what no order explains: where no approvals are required, an approval for one order that is
// sent at the very moment in which its key is executed for another order may be stored. It can never be executed.
func (w *world) isApprovedTooLate(a act, said string) bool {
	c, isClaimed := w.claims[a.Key]
	_, isOrder := w.orders[a.Order]
	_, isApproved := w.approvals[a.Key]
	if w.requires || a.Kind != "approve" || said != "201" || !isClaimed || c.revoked || c.order == a.Order ||
		!isOrder || isApproved {
		return false
	}
	w.approvals[a.Key] = approval{order: a.Order, cents: a.Cents}
	return true
}

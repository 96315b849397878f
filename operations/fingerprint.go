package operations

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Fingerprint is what two attempts at the same refund share and two refunds under one key do not: the lower-case hex
// SHA-256 of the money-moving fields as a JSON object with sorted members and ", " and ": " between them. Reason and
// metadata are not hashed. An order id is printable ASCII, so that only the quote and the backslash need escaping.
func Fingerprint(orderID string, amountCents int64) string {
	b := make([]byte, 0, 64+len(orderID))
	b = append(b, `{"amount_cents": `...)
	b = strconv.AppendInt(b, amountCents, 10)
	b = append(b, `, "order_id": "`...)
	for i := range len(orderID) {
		if c := orderID[i]; c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, orderID[i])
	}
	b = append(b, `"}`...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

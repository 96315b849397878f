package bench

import (
	"crypto/md5" //nolint:gosec // spreads keys over an index; SQL has the same function
	"encoding/hex"
	"fmt"
	"strconv"
	"sync/atomic"
)

// keys are the operation ids of one pool, numbered from 0. A number is used once, but for those of executed refunds,
// which are used again and again.
type keys struct {
	pool   pool
	random bool
	next   atomic.Int64 // the next number to use
	ready  int64        // how many are approved, or executed
	proven int64        // up to which rows were compared with answers

	// Numbers whose refund was sent; was acknowledged with a 2xx; was refused with the word that no money moved.
	sent, acknowledged, refused bitset
}

// pool is the letter that ids begin with.
type pool byte

const (
	poolNew       pool = 'n'
	poolHot       pool = 'h'
	poolSimulator pool = 's'
	poolExecuted  pool = 'd'
)

func (k Kind) pool() pool {
	switch k {
	case KindHot:
		return poolHot
	case KindSimulator:
		return poolSimulator
	case KindReplay, KindConflict:
		return poolExecuted
	default:
		return poolNew
	}
}

// As long as a UUID with a letter before it would be, give or take.
const (
	idDigits    = 32
	idLength    = 2 + idDigits
	orderDigits = 9
	orderLength = 2 + orderDigits
)

// putOperation writes the id of number n; idSQL makes the same.
func (k *keys) putOperation(to []byte, n int64) {
	to[0], to[1] = byte(k.pool), '-'
	if !k.random {
		putDigits(to[2:idLength], n)
		return
	}
	var digits [20]byte
	sum := md5.Sum(strconv.AppendInt(digits[:0], n, 10)) //nolint:gosec // as above
	hex.Encode(to[2:idLength], sum[:])
}

// idSQL is the operation id of number n in SQL.
func (k *keys) idSQL() string {
	if k.random {
		return fmt.Sprintf(`'%c-' || md5(n::text)`, k.pool)
	}
	return fmt.Sprintf(`'%c-' || lpad(n::text, %d, '0')`, k.pool, idDigits)
}

// putOrder writes the id of the order that number n refunds, of so many; orderSQL makes the same.
func (k *keys) putOrder(to []byte, n, orders int64) {
	to[0], to[1] = 'o', '-'
	switch k.pool {
	case poolHot:
		to[0], n = 'h', 0
	case poolSimulator:
		to[0] = 's'
	}
	putDigits(to[2:orderLength], n*stride%orders)
}

// orderSQL is the id of the order that number n refunds, of so many, in SQL.
func (k *keys) orderSQL(orders int64) string {
	number, letter := fmt.Sprintf(`(n * %d %% %d)`, stride, orders), 'o'
	switch k.pool {
	case poolHot:
		number, letter = `0`, 'h'
	case poolSimulator:
		letter = 's'
	}
	return fmt.Sprintf(`'%c-' || lpad(%s::text, %d, '0')`, letter, number, orderDigits)
}

// putDigits fills to with n in decimal and leading zeros.
func putDigits(to []byte, n int64) {
	for i := len(to) - 1; i >= 0; i-- {
		to[i] = byte('0' + n%10)
		n /= 10
	}
}

// bitset is a set of numbers that any number of goroutines may add to at once; it must not grow meanwhile.
type bitset struct{ words []atomic.Uint64 }

// grow makes room for the numbers below n.
func (b *bitset) grow(n int64) {
	need := int(n/64) + 1
	if need <= len(b.words) {
		return
	}
	words := make([]atomic.Uint64, max(need, 2*len(b.words)))
	for i := range b.words {
		words[i].Store(b.words[i].Load())
	}
	b.words = words
}

func (b *bitset) add(n int64) { b.words[n/64].Or(1 << (n % 64)) }

func (b *bitset) has(n int64) bool {
	return n/64 < int64(len(b.words)) && b.words[n/64].Load()&(1<<(n%64)) != 0
}

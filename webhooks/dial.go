package webhooks

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// MaxURL is the longest URL, in bytes.
const MaxURL = 2048

// checkURL refuses a URL that nothing is ever sent to. Where its name leads is looked at when it is dialled, each time.
func (o *Outbox) checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil, len(s) > MaxURL, !utf8.ValidString(s), strings.ContainsFunc(s, isNotPrintable):
		return ErrURL
	case u.Scheme != "https" && (u.Scheme != "http" || !o.allowPrivate):
		return ErrURL
	case u.Hostname() == "", u.User != nil, u.Opaque != "", u.Fragment != "", strings.HasSuffix(s, "#"),
		!isPort(u.Port()):
		return ErrURL
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !o.allowPrivate && !isPublic(ip) {
		return ErrURL
	}
	return nil
}

func isNotPrintable(r rune) bool { return r <= ' ' || r > '~' }

func isPort(s string) bool {
	if s == "" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// inside are the networks that are no public host's: IANA's special-purpose registries (RFC 6890 and its updates), and
// those that carry an IPv4 address within an IPv6 one, which may be any.
var inside = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("224.0.0.0/3"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"),
	netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
	netip.MustParsePrefix("5f00::/16"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/9"),
	netip.MustParsePrefix("ff00::/8"),
}

// isPublic reports whether an address is a host's in the public network. An IPv4 address written as an IPv6 one is not.
func isPublic(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
		return false
	}
	for _, network := range inside {
		if network.Contains(ip) {
			return false
		}
	}
	return true
}

// errNotAllowed reports an address that nothing is sent to.
var errNotAllowed = errors.New("address not allowed")

// publicOnly refuses a connection whose address is not public. The dialer asks it of each address that a name has,
// right before it connects, so that a name which has changed its mind leads nowhere else.
func publicOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(at.Addr()) {
		return errNotAllowed
	}
	return nil
}

const (
	callLimit   = 10 * time.Second // for one attempt, the name's resolution included
	answerLimit = 64 << 10         // bytes of an answer that are read, its header and its body
	idleLimit   = 30 * time.Second // for a connection that waits for its next message
)

// newClient is what messages are sent with. It follows no redirect and knows no proxy, which would dial for it.
func newClient(resolver *net.Resolver, allowPrivate bool, perHost int) *http.Client {
	dialer := &net.Dialer{Resolver: resolver}
	if !allowPrivate {
		dialer.ControlContext = publicOnly
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dialer.DialContext, MaxIdleConnsPerHost: perHost, IdleConnTimeout: idleLimit, DisableCompression: true,
			MaxResponseHeaderBytes: answerLimit, TLSHandshakeTimeout: callLimit,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

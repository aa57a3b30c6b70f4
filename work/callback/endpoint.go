package callback

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/outbound"
	"github.com/midgehq/midge/storage"
)

// endpoint is the receiver of a kind.
type endpoint struct {
	url     string
	host    string // with the port, in lower case
	plain   bool   // without TLS
	keys    [][]byte
	timeout time.Duration
	perHost int
	allow   []netip.Prefix
	headers []string
	most    int // bytes of a result, midge.None for no results
	log     *slog.Logger
	client  *http.Transport // follows no redirects and keeps no cookies
	places  chan struct{}   // has an element for each request to the host that is under way
	leftOut atomic.Int64    // how many bodies were no results
}

// newEndpoint checks a configuration and sets its defaults.
func newEndpoint(cfg Config) (*endpoint, error) {
	e := &endpoint{
		timeout: cmp.Or(cfg.Timeout, defaultTimeout), perHost: cmp.Or(cfg.PerHost, defaultPerHost),
		allow: slices.Clone(cfg.Allow), headers: slices.Clone(cfg.Headers),
		most: cmp.Or(cfg.MaxResult, defaultResult), log: cfg.Log,
	}
	for _, p := range e.allow {
		if err := outbound.CheckPrefix("allowed network", p); err != nil {
			return nil, err
		}
	}
	if err := e.locate(cfg.URL); err != nil {
		return nil, err
	}
	var err error
	if e.keys, err = keysOf(cfg.Secrets); err != nil {
		return nil, err
	}
	switch {
	case len(e.keys) == 0 && !cfg.Unsigned:
		return nil, storage.Invalid("secrets", "none", "one or two, or the setting that requests are unsigned")
	case len(e.keys) > 0 && cfg.Unsigned:
		return nil, storage.Invalid("secrets", "with the setting that requests are unsigned", "one of them")
	case e.timeout < time.Millisecond || e.timeout > maxTimeout:
		return nil, storage.Invalid("timeout of a request", e.timeout,
			"1ms to %v, 0 for %v", maxTimeout, defaultTimeout)
	case e.perHost < 1 || e.perHost > maxPerHost:
		return nil, storage.Invalid("number of requests at once for a host", e.perHost,
			"1 to %d, 0 for %d", maxPerHost, defaultPerHost)
	case e.most != midge.None && (e.most < 0 || e.most > maxResult):
		return nil, storage.Invalid("size of a result", e.most,
			"1 to %d bytes, 0 for %d, %d for no results", maxResult, defaultResult, midge.None)
	}
	for _, name := range e.headers {
		if err := checkHeader(name); err != nil {
			return nil, err
		}
	}
	e.client = outbound.NewTransport(e.permit, cfg.resolver)
	return e, nil
}

// locate reads the URL. Its errors do not show the URL.
func (e *endpoint) locate(text string) error {
	const want = "one such as https://host/path"
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		return storage.Invalid("URL", "***", want)
	}
	e.plain = u.Scheme == "http"
	if e.plain && len(e.allow) == 0 {
		return storage.Invalid("URL", "http://"+u.Host+"/***",
			"https://, or the network of the receiver among the allowed networks")
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "80", false: "443"}[e.plain]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return storage.Invalid("URL", "with the port "+port, "a port of 1 to 65535")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil { // no look-up will change it
		if err := e.permit(ip); err != nil {
			return storage.Invalid("URL", "with "+err.Error(),
				"another address, or its network among the allowed networks")
		}
	}
	e.url, e.host = text, net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	return nil
}

// refusedError is the error of a connection that was refused because of its address.
type refusedError struct {
	ip    netip.Addr
	class outbound.Class
	plain bool
}

func (e *refusedError) Error() string {
	if e.class == outbound.Public && e.plain {
		return fmt.Sprintf("%s, which is not allowed without TLS", e.ip)
	}
	return fmt.Sprintf("%s, %s, which is not allowed", e.ip, e.class)
}

// permit returns an error for an address to which nothing may be posted.
func (e *endpoint) permit(ip netip.Addr) error {
	class := outbound.ClassOf(ip)
	if class == outbound.Public && !e.plain || outbound.Named(ip, e.allow) {
		return nil
	}
	return &refusedError{ip, class, e.plain}
}

// ownHeaders are the beginnings of the names of headers that a callback or HTTP itself sets.
var ownHeaders = []string{
	"webhook-", "midge-", "content-", "proxy-", "host", "user-agent", "connection", "keep-alive",
	"transfer-encoding", "te", "trailer", "upgrade", "expect", "accept-encoding",
}

// secretHeaders are the headers by which HTTP authenticates a request. The headers of a task stand in the
// storage as they are, and everybody who may see the task sees them. Such a header would also replace the
// user and the password of the URL.
var secretHeaders = []string{"authorization", "cookie"}

// checkHeader checks the name of a header that is sent along.
func checkHeader(name string) error {
	const others = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune(others, rune(c)) {
			return storage.Invalid("header", name, "a name that HTTP allows, such as traceparent")
		}
	}
	lower := strings.ToLower(name)
	own := slices.ContainsFunc(ownHeaders, func(own string) bool {
		return lower == own || strings.HasSuffix(own, "-") && strings.HasPrefix(lower, own)
	})
	if slices.Contains(secretHeaders, lower) {
		return storage.Invalid("header", name,
			"none that holds a secret: the signature, or a user and a password in the URL, say who sends the request")
	}
	if name == "" || own {
		return storage.Invalid("header", name, "one that neither HTTP nor the callback sets, such as traceparent")
	}
	return nil
}

package callback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

func TestAConfigurationIsChecked(t *testing.T) {
	good := Config{URL: "https://shop.example/s3cret", Secrets: []string{secretA}}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	inside := netip.MustParsePrefix("10.0.0.0/8")
	for want, change := range map[string]func(*Config){
		`invalid URL "***"`:                        func(c *Config) { c.URL = "" },
		`want one such as https://host/path`:       func(c *Config) { c.URL = "ftp://shop.example/s3cret" },
		`invalid URL "***": want one`:              func(c *Config) { c.URL = "https:///s3cret" },
		`invalid URL "***": want`:                  func(c *Config) { c.URL = "https:shop.example/s3cret" },
		`URL "***"`:                                func(c *Config) { c.URL = "https://%zz/s3cret" },
		`URL "with the port 70000"`:                func(c *Config) { c.URL = "https://shop.example:70000/s3cret" },
		`"http://shop.example/***": want https://`: func(c *Config) { c.URL = "http://ann:s3cret@shop.example/s3cret" },
		`URL "with 127.0.0.1, an address of this`:  func(c *Config) { c.URL = "https://127.0.0.1/s3cret" },
		`URL "with ::ffff:10.0.0.1, a private`:     func(c *Config) { c.URL = "https://[::ffff:10.0.0.1]/s3cret" },
		`URL "with 169.254.169.254, an address of a`: func(c *Config) {
			c.URL, c.Allow = "http://169.254.169.254/s3cret", []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		},
		`with 1.1.1.1, which is not allowed without`:                    func(c *Config) { c.URL, c.Allow = "http://1.1.1.1/s3cret", []netip.Prefix{inside} },
		`invalid secrets "none"`:                                        func(c *Config) { c.Secrets = nil },
		`invalid secrets "3 of them"`:                                   func(c *Config) { c.Secrets = []string{secretA, secretA, secretA} },
		`invalid secrets "with the setting`:                             func(c *Config) { c.Unsigned = true },
		`invalid secret "***": want "whsec_" and`:                       func(c *Config) { c.Secrets = []string{"s3cret"} },
		`the base64 of 24 to 64 bytes`:                                  func(c *Config) { c.Secrets = []string{"whsec_" + strings.Repeat("QUJD", 7)} },
		`want "whsec_" and the base64 of 24 to`:                         func(c *Config) { c.Secrets = []string{"whsec_" + strings.Repeat("QUJD", 22)} },
		`base64 of 24 to 64`:                                            func(c *Config) { c.Secrets = []string{secretA + "s3cret!"} },
		`invalid timeout of a request 1h0m1s`:                           func(c *Config) { c.Timeout = time.Hour + time.Second },
		`invalid timeout of a request -1s`:                              func(c *Config) { c.Timeout = -time.Second },
		`requests at once for a host -1`:                                func(c *Config) { c.PerHost = -1 },
		`invalid size of a result -2`:                                   func(c *Config) { c.MaxResult = -2 },
		`invalid size of a result 1048577`:                              func(c *Config) { c.MaxResult = 1<<20 + 1 },
		`invalid allowed network`:                                       func(c *Config) { c.Allow = []netip.Prefix{{}} },
		`invalid header "a b"`:                                          func(c *Config) { c.Headers = []string{"a b"} },
		`invalid header "Webhook-ID"`:                                   func(c *Config) { c.Headers = []string{"Webhook-ID"} },
		`invalid header "content-length"`:                               func(c *Config) { c.Headers = []string{"content-length"} },
		`invalid header "Host"`:                                         func(c *Config) { c.Headers = []string{"Host"} },
		`invalid header ""`:                                             func(c *Config) { c.Headers = []string{""} },
		`invalid header "Authorization": want none that holds a secret`: func(c *Config) { c.Headers = []string{"Authorization"} },
		`invalid header "cOOkie": want none that holds a secret`:        func(c *Config) { c.Headers = []string{"cOOkie"} },
		`invalid header "Proxy-Authorization"`:                          func(c *Config) { c.Headers = []string{"Proxy-Authorization"} },
	} {
		c := good
		change(&c)
		err := c.Check()
		var invalid *midge.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.URL, c.Allow = "http://10.1.2.3:8080/x", []netip.Prefix{inside} },
		func(c *Config) { c.URL, c.Allow = "http://shop.internal/x", []netip.Prefix{inside} },
		func(c *Config) { c.Secrets, c.Unsigned = nil, true },
		func(c *Config) { c.Headers = []string{"traceparent", "X-Hostile"} },
		func(c *Config) { c.MaxResult = midge.None },
	} {
		c := good
		if change(&c); c.Check() != nil {
			t.Errorf("%+v: %v", c, c.Check())
		}
	}
	if err := Handle(nil, "paid", good); err == nil {
		t.Error("no runner: got nil, want an error")
	}
}

// names is a server of names. Each lookup takes the next of its addresses, and the last one stays. With all,
// each lookup takes all of them.
type names struct {
	addresses []netip.Addr
	all       bool
	asked     atomic.Int64
}

// resolver returns a resolver that asks the server.
func (n *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends when the socket is closed
		defer close(ended)
		query := make([]byte, 512)
		for {
			size, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(n.answer(query[:size]), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-ended })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer returns the answer of a server of names to a query with one question (RFC 1035).
func (n *names) answer(query []byte) []byte {
	end := 12
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	question := query[12 : end+5]
	wanted := binary.BigEndian.Uint16(query[end+1:])
	found := n.addresses
	if !n.all {
		i := min(int(n.asked.Load()), len(found)-1)
		found = found[i : i+1]
	}
	found = slices.DeleteFunc(slices.Clone(found), func(ip netip.Addr) bool { return ip.Is4() != (wanted == 1) })
	if len(found) > 0 {
		n.asked.Add(1)
	}
	out := append([]byte{}, query[:2]...)
	out = append(out, 0x81, 0x80, 0, 1)
	out = binary.BigEndian.AppendUint16(out, uint16(len(found)))
	out = append(append(out, 0, 0, 0, 0), question...)
	for _, ip := range found {
		out = binary.BigEndian.AppendUint16(append(out, 0xc0, 12), wanted)
		out = append(out, 0, 1, 0, 0, 0, 0)
		out = append(binary.BigEndian.AppendUint16(out, uint16(ip.BitLen()/8)), ip.AsSlice()...)
	}
	return out
}

// TestANameThatMeansAnAddressInsideIsRefused resolves the name of the receiver to each form of an address inside.
func TestANameThatMeansAnAddressInsideIsRefused(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1":          "127.0.0.1, an address of this machine,",
		"0.0.0.0":            "0.0.0.0, an address of this machine,",
		"10.0.0.1":           "10.0.0.1, a private address,",
		"172.16.9.9":         "a private address,",
		"192.168.1.1":        "a private address,",
		"100.64.0.1":         "a private address,",
		"169.254.169.254":    "169.254.169.254, an address of a cloud's own services,",
		"169.254.1.1":        "a link-local address,",
		"224.0.0.1":          "a reserved address,",
		"255.255.255.255":    "a reserved address,",
		"::1":                "::1, an address of this machine,",
		"::":                 "an address of this machine,",
		"::ffff:127.0.0.1":   "an address of this machine,",
		"::ffff:10.0.0.1":    "a private address,",
		"64:ff9b::7f00:1":    "64:ff9b::7f00:1, an address of this machine,",
		"64:ff9b::a9fe:a9fe": "an address of a cloud's own services,",
		"2002:7f00:1::":      "an address of this machine,",
		"fe80::1":            "a link-local address,",
		"fd12::1":            "a private address,",
		"fd00:ec2::254":      "an address of a cloud's own services,",
		"ff02::1":            "a reserved address,",
		"::7f00:1":           "a reserved address,",
	} {
		n := &names{addresses: []netip.Addr{netip.MustParseAddr(address)}}
		resolver := n.resolver(t)
		r := newRig(t, answers(http.StatusOK, ""), func(c *Config, _ *midge.RunnerConfig) {
			c.URL, c.Allow, c.resolver = "https://shop.example/s3cret", nil, resolver
		})
		r.enqueue(midge.Retries(midge.None))
		end := r.next()
		r.wants(end, midge.OutcomeFailed, "shop.example:443 resolves to ")
		if end.Err != nil && !strings.Contains(end.Err.Error(), want+" which is not allowed") {
			t.Errorf("%s: got %v, want %s", address, end.Err, want)
		}
		r.drain()
	}
}

// TestANameWithAnAddressInsideReachesTheOthersAlone has a name with three addresses, of which one is allowed.
func TestANameWithAnAddressInsideReachesTheOthersAlone(t *testing.T) {
	n := &names{all: true, addresses: []netip.Addr{
		netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1"),
	}}
	resolver := n.resolver(t)
	var port string
	r := newRig(t, answers(http.StatusOK, ""), func(c *Config, _ *midge.RunnerConfig) {
		c.URL = strings.Replace(c.URL, "127.0.0.1", "shop.example", 1)
		c.Allow, c.resolver = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, resolver
		port, _, _ = strings.Cut(strings.TrimPrefix(c.URL, "http://shop.example:"), "/")
	})
	inside, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends when the listener is closed
		defer close(ended)
		if conn, err := inside.Accept(); err == nil {
			t.Error("the address inside was connected to")
			_ = conn.Close()
		}
	}()
	for range 3 {
		r.enqueue(midge.Retries(midge.None))
		r.wants(r.next(), midge.OutcomeSucceeded, "")
	}
	_ = inside.Close()
	<-ended
}

// TestARebindingIsRefused resolves the name to an allowed address at first, and then to an address that is
// not.
func TestARebindingIsRefused(t *testing.T) {
	to := &recorder{next: answers(http.StatusInternalServerError, "")}
	n := &names{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")}}
	resolver := n.resolver(t)
	r := newRig(t, to.ServeHTTP, func(c *Config, _ *midge.RunnerConfig) {
		c.URL = strings.Replace(c.URL, "127.0.0.1", "shop.example", 1)
		c.Allow, c.resolver = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, resolver
	})
	r.enqueue(midge.Retries(2))
	r.wants(r.next(), midge.OutcomeFailed, "answered 500")
	r.wants(r.next(), midge.OutcomeFailed, "resolves to 127.0.0.2, an address of this machine, which is not allowed")
	r.wants(r.next(), midge.OutcomeFailed, "answered 500") // it is retried, and the name is right again
	if got := len(to.requests()); got != 2 {
		t.Errorf("got %d requests, want 2", got)
	}
}

// TestPlainHTTPStaysInside posts without TLS to a name with a public address.
func TestPlainHTTPStaysInside(t *testing.T) {
	n := &names{addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7")}}
	resolver := n.resolver(t)
	r := newRig(t, answers(http.StatusOK, ""), func(c *Config, _ *midge.RunnerConfig) {
		c.URL, c.resolver = "http://shop.example/s3cret", resolver
	})
	r.enqueue(midge.Retries(midge.None))
	r.wants(r.next(), midge.OutcomeFailed, "resolves to 203.0.113.7, which is not allowed without TLS")
}

// TestTheCertificateOfTheReceiverIsChecked posts to servers of TLS. The attempts are made without a runner.
func TestTheCertificateOfTheReceiverIsChecked(t *testing.T) {
	for _, c := range []struct {
		name       string
		trust      bool
		newest     uint16
		want       string
		wantPosted bool
	}{
		{"trusted", true, tls.VersionTLS13, "", true},
		{"TLS 1.2", true, tls.VersionTLS12, "", true},
		{"TLS 1.1", true, tls.VersionTLS11, "protocol version", false},
		{"unknown", false, tls.VersionTLS13, "certificate", false},
	} {
		to := &recorder{next: answers(http.StatusNoContent, "")}
		site := httptest.NewUnstartedServer(to)
		site.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: c.newest}
		site.Config.ErrorLog = log.New(io.Discard, "", 0)
		site.StartTLS()
		e, err := newEndpoint(Config{URL: site.URL + "/s3cret", Secrets: []string{secretA}, Allow: loopback})
		if err != nil {
			t.Fatal(err)
		}
		e.places = make(chan struct{}, 1)
		if c.trust {
			e.client.TLSClientConfig.RootCAs = x509.NewCertPool()
			e.client.TLSClientConfig.RootCAs.AddCert(site.Certificate())
		}
		err = e.run(t.Context(), midge.RawJob{Kind: "paid", Encoding: midge.JSON, Payload: []byte("{}")})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if got := len(to.requests()) == 1; got != c.wantPosted {
			t.Errorf("%s: posted %t, want %t", c.name, got, c.wantPosted)
		}
		site.Close()
	}
}

package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// The functions of this file explain the faults of a Config or of its server. Their errors name the
// value found and the value wanted, and never a password.

// checkServer returns an *InvalidError unless the Config has either a URL or a Client.
func (c *Config) checkServer() error {
	switch {
	case c.URL != "" && c.Client != nil:
		return storage.Invalid("redis.Config", "with URL and Client", "one of them")
	case c.URL == "" && c.Client == nil:
		return storage.Invalid("redis.Config", "without URL and Client", "one of them")
	case c.Client != nil && c.TLS != nil:
		return storage.Invalid("redis.Config", "with Client and TLS", "TLS in the Client's own options")
	}
	return nil
}

// checkClient returns an *InvalidError for a client of the application that the storage cannot use.
func checkClient(client goredis.UniversalClient) error {
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return storage.Invalid("Config.Client", fmt.Sprintf("nil of type %T", client), "a client")
	}
	if _, ok := client.(*goredis.Ring); ok {
		return storage.Invalid("Config.Client", "of type *redis.Ring", "*redis.Client or *redis.ClusterClient")
	}
	for _, addr := range addresses(client) {
		switch {
		case strings.ContainsAny(addr, "@/"): // go-redis would name it in its errors
			return storage.Invalid("Config.Client", "with a URL as its address",
				"host:port, and user and password in options of their own")
		case strings.Contains(addr, ","):
			return storage.Invalid("Config.Client", "with the address "+addr,
				"one host:port, or a *redis.ClusterClient for several")
		}
	}
	return nil
}

// addresses returns the addresses in the options of an application's client, or nil if they have none.
func addresses(client goredis.UniversalClient) []string {
	switch client := client.(type) {
	case *goredis.ClusterClient:
		return client.Options().Addrs
	case *goredis.Client:
		if o := client.Options(); o.Addr != sentinels && o.Network != "unix" {
			return []string{o.Addr}
		}
	}
	return nil
}

// severalHosts reports whether the URL of one Redis lists several hosts, in the syntax for a Cluster of
// this package or of go-redis.
func severalHosts(text string) bool {
	if strings.HasPrefix(text, "unix:") {
		return false
	}
	u, err := url.Parse(text)
	return strings.Contains(redact(text), ",") || err == nil && u.Query().Has("addr")
}

// sentinels is the address in the options of a client of go-redis that asks sentinels for the master.
const sentinels = "FailoverClient"

// server returns the name of the server for errors, without secrets.
func (c *Config) server() string {
	if c.Client == nil {
		return redact(c.URL)
	}
	if addrs := addresses(c.Client); len(addrs) > 0 {
		return strings.Join(addrs, ",")
	}
	return "the Client's server"
}

// explain returns an error of Open with the name of the server and, if it is known, the setting of
// the Config that may be wrong.
func (c *Config) explain(client goredis.UniversalClient, err error) error {
	name := c.server()
	if away(err) {
		return fmt.Errorf("%s: no answer%s: %w", name, tlsHint(client, err), err)
	}
	if errors.Is(err, errUnfit) {
		return fmt.Errorf("%s: %w", name, err)
	}
	hint := given(client)
	switch {
	case goredis.HasErrorPrefix(err, "NOAUTH"):
		hint = "no password was given, want one"
	case goredis.HasErrorPrefix(err, "WRONGPASS"):
		hint = "want the user and password that the server knows"
	}
	if hint != "" {
		hint += ": "
	}
	if !errors.Is(err, storage.ErrRefused) { // the server refused the first commands of the connection
		err = fmt.Errorf("%w: %w", storage.ErrRefused, err)
	}
	return fmt.Errorf("%s: %s%w", name, hint, err)
}

// given returns the settings of a client that the server may have rejected, as a hint.
func given(client goredis.UniversalClient) string {
	if _, ok := client.(*goredis.ClusterClient); ok {
		return "want redis:// or a *redis.Client where it is no Cluster"
	}
	one, ok := client.(*goredis.Client)
	if !ok {
		return ""
	}
	var parts []string
	if one.Options().Addr == sentinels {
		parts = append(parts, "want the addresses of sentinels")
	}
	if db := one.Options().DB; db > 0 {
		parts = append(parts, fmt.Sprintf("database %d was given, want one that the server has: "+
			"0 to 15 unless it is set otherwise, 0 alone on a Cluster", db))
	}
	return strings.Join(parts, "; ")
}

// tlsHint returns a hint if TLS may be the cause of err: the connection was made, but the exchange on
// it failed. Otherwise it returns "".
func tlsHint(client goredis.UniversalClient, err error) string {
	var dial *net.OpError
	var distrust *tls.CertificateVerificationError
	if errors.As(err, &dial) && dial.Op == "dial" || errors.As(err, &distrust) ||
		errors.Is(err, context.Canceled) {
		return ""
	}
	over := false
	switch client := client.(type) {
	case *goredis.Client:
		over = client.Options().TLSConfig != nil
	case *goredis.ClusterClient:
		over = client.Options().TLSConfig != nil
	}
	switch {
	case over:
		return " over TLS (want redis:// if it speaks none there)"
	case !over && errors.Is(err, io.EOF):
		return " without TLS (want rediss:// if it wants that)"
	}
	return ""
}

package cli

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
)

// named lets only requests for the hosts of --host pass, if there are such. Every visitor is an admin then,
// and a page of another site would reach the dashboard by a name of its own that means the same address.
func (f *serveFlags) named(next http.Handler) http.Handler {
	if len(f.hosts) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostname(r.Host)
		named := func(name string) bool { return strings.EqualFold(hostname(name), host) }
		if !slices.ContainsFunc(f.hosts, named) {
			text := fmt.Sprintf("This dashboard does not answer for the host %q. midge serve takes --host.", r.Host)
			http.Error(w, text, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// strict makes browsers use TLS for the host of a request from now on, for a year. A browser would do so for
// all ports of the host. Other programs on the machine of the browser may serve the names of that machine
// without TLS, so the header is never sent for those.
func strict(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := strings.ToLower(hostname(r.Host))
		ip := net.ParseIP(host)
		if host != "localhost" && !strings.HasSuffix(host, ".localhost") && (ip == nil || !ip.IsLoopback()) {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

// hostname returns a host without its port and brackets.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

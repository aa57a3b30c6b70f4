package dashboard

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/storage"
)

// policy is what a browser may load and run for a page: what this handler serves, and nothing written
// within a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// open reports whether a request is for what is shown before a login.
func (s *server) open(r *http.Request) bool {
	path := s.path(r)
	return s.cfg.Users != nil && s.cfg.Who == nil && (path == "/login" || strings.HasPrefix(path, "/assets/"))
}

func query(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

// failed is what a viewer is told of a fault of the dashboard itself.
const failed = "The dashboard failed at this page. Its log tells more."

// maxForm bounds the body of a request, beside its payload. formGrowth is by how much a payload may be longer
// as the text of a form: most payloads grow less.
const (
	maxForm    = 4 << 20
	formGrowth = 10
)

// formOf bounds the body of a request that has a payload, by the limit of the storage as a look found it.
func (s *server) formOf(last *sampler.Sample) int64 {
	var limits storage.Limits
	if last != nil {
		limits = last.Info.Limits
	}
	return maxForm + formGrowth*int64(limits.WithDefaults().MaxPayload)
}

// formed reads the form of a request that changes something, within its bound.
func (s *server) formed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most := int64(maxForm)
		if path := s.path(r); unsafe(r) && (path == "/edit" || strings.HasSuffix(path, "/add")) {
			now, _ := s.sampler.Sample(r.Context()) // without one the default limit holds
			most = s.formOf(now)
		}
		r.Body = http.MaxBytesReader(w, r.Body, most)
		if !unsafe(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := r.ParseForm()
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			err = &statusError{http.StatusRequestEntityTooLarge, "The form is larger than " +
				format.Bytes(int(large.Limit)) + ", and nothing was changed. Go back: your browser still has the text."}
		} else if err != nil {
			err = &statusError{http.StatusBadRequest, "The form cannot be read."}
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guard lets in who may look, refuses what another site has sent, and forbids what no page needs.
func (s *server) guard(next http.Handler) http.Handler {
	sameSite := http.NewCrossOriginProtection()
	sameSite.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &statusError{http.StatusForbidden, "This request came from another site."})
	}))
	checked := sameSite.Handler(s.formed(next))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		defer s.recovered(w, r)
		user, err := s.who(r)
		if err != nil && !s.open(r) {
			if err == errLogin && r.Method == http.MethodGet && //nolint:errorlint // it is never wrapped
				!strings.HasSuffix(r.URL.Path, "/events") {
				http.Redirect(w, r, s.cfg.Base+"/login?back="+url.QueryEscape(s.cfg.Base+s.path(r)+query(r)),
					http.StatusSeeOther)
				return
			}
			s.fail(w, r, err)
			return
		}
		if unsafe(r) && cookieAlone(r) {
			s.fail(w, r, &statusError{http.StatusForbidden, "This request does not say where it comes from."})
			return
		}
		checked.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
	})
}

func unsafe(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// cookieAlone reports whether the request was sent by something that keeps cookies, and does not say from
// which site: http.CrossOriginProtection lets that pass, as no browser of this decade does so.
func cookieAlone(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" && r.Header.Get("Cookie") != ""
}

// recovered answers for a page that panicked.
func (s *server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint,err113 // as net/http compares it
		panic(v)
	}
	s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "midge: the dashboard panicked",
		slog.String("path", r.URL.Path), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	s.fail(w, r, &statusError{http.StatusInternalServerError, failed})
}

// local reports whether a request comes from this machine, for a name that no other site can own, and not
// through a proxy. A bare proxy shows by HTTP/1.0, or by a page of another name that sent the request.
func local(r *http.Request) bool {
	for _, passedOn := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(passedOn) != "" {
			return false
		}
	}
	for _, sender := range []string{"Origin", "Referer"} {
		if text := r.Header.Get(sender); text != "" {
			if from, err := url.Parse(text); err != nil || !loopback(from.Host) {
				return false
			}
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && loopback(r.Host) && r.ProtoAtLeast(1, 1)
}

// loopback reports whether a host, with a port or without one, is a name of this machine alone.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(strings.ToLower(host), "[]")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

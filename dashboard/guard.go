package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/storage"
)

// policy is the Content-Security-Policy of all responses. A browser may load and run only files of the same
// origin, to which an application that mounts the handler may add files of its own. It runs no script and no
// style inside a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// open reports whether a request is for the login page, or for a file that this page needs.
func (s *server) open(r *http.Request) bool {
	path := s.path(r)
	return s.cfg.Who == nil && (path == "/login" || strings.HasPrefix(path, "/assets/"))
}

func query(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return ""
	}
	return "?" + r.URL.RawQuery
}

// failed is the text that a viewer sees after a fault of the dashboard itself.
const failed = "The dashboard could not answer this request. The log of its process has the reason."

// maxForm limits the body of a request without its payload, in bytes. formGrowth is how many times longer a
// payload may be as the text of a form. Most payloads grow less.
const (
	maxForm    = 4 << 20
	formGrowth = 10
	// maxLogin limits the body of a login, which anybody can send. Logins wait for each other with their forms.
	maxLogin = 16 << 10
)

// limitOf returns the largest body of a request, in bytes. Only a user who may send a payload can send a long
// one.
func (s *server) limitOf(r *http.Request) int64 {
	if s.open(r) {
		return maxLogin
	}
	may, path, long := s.view(r).May, s.path(r), false
	switch {
	case !unsafe(r):
	case path == "/edit":
		long = may(string(access.Alter)) && may(string(access.Payloads))
	case strings.HasSuffix(path, "/add"):
		long = may(string(access.Enqueue))
	}
	if !long {
		return maxForm
	}
	now, _ := s.sampler.Sample(r.Context()) // without a sample the default limit holds
	return s.formOf(now)
}

// formOf returns the largest body of a request with a payload, in bytes. It depends on the storage's limit in
// the given sample, or on the default limit if there is no sample.
func (s *server) formOf(last *sampler.Sample) int64 {
	var limits storage.Limits
	if last != nil {
		limits = last.Info.Limits
	}
	return maxForm + formGrowth*int64(limits.WithDefaults().MaxPayload)
}

// formed limits the bodies of requests, and reads the form of each request that changes something. The
// parameters of such a request come from its body alone.
func (s *server) formed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, s.limitOf(r))
		if !unsafe(r) {
			next.ServeHTTP(w, r)
			return
		}
		err := r.ParseForm()
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			if r.ProtoMajor == 1 { // else net/http reads more of the form first, if another handler wraps w
				w.Header().Set("Connection", "close")
			}
			err = &statusError{http.StatusRequestEntityTooLarge, "The form is larger than " +
				format.Bytes(int(large.Limit)) + ", so nothing was changed. Go back: your browser still has your text."}
		} else if err != nil {
			err = &statusError{http.StatusBadRequest, "The form cannot be read."}
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		for _, values := range r.PostForm { // a value that is kept must not keep the whole body
			for i, value := range values {
				values[i] = strings.Clone(value)
			}
		}
		r.Form = r.PostForm // without the parameters of the address
		next.ServeHTTP(w, r)
	})
}

// guard serves only users who may read, refuses requests that another site sent, and forbids browsers
// everything that no page needs.
func (s *server) guard(next http.Handler) http.Handler {
	sameSite := http.NewCrossOriginProtection()
	for _, origin := range s.cfg.TrustedOrigins {
		_ = sameSite.AddTrustedOrigin(origin) // Config.check has tried it
	}
	sameSite.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &statusError{http.StatusForbidden, elsewhere(r)})
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
		of := *r
		of.RemoteAddr = s.clientOf(r)
		r = &of
		user, err := s.who(r)
		if err != nil && !s.open(r) {
			if err == errLogin && r.Method == http.MethodGet && //nolint:errorlint // it is never wrapped
				s.path(r) != "/events" {
				http.Redirect(w, r, s.cfg.Base+"/login?back="+url.QueryEscape(s.cfg.Base+s.path(r)+query(r)),
					http.StatusSeeOther)
				return
			}
			s.fail(w, r, err)
			return
		}
		if unsafe(r) && cookieAlone(r) {
			text := "This request is refused: it does not name the site from which it came."
			s.fail(w, r, &statusError{http.StatusForbidden, text})
			return
		}
		v := viewer{user, func() error { _, err := s.who(r); return err }}
		checked.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), viewerKey{}, v)))
	})
}

// elsewhere returns the answer to a request that another site sent, or that seems so because a proxy replaced
// its host.
func elsewhere(r *http.Request) string {
	text := "This request is refused: it came from another site."
	origin := r.Header.Get("Origin")
	if from, err := url.Parse(origin); err != nil || from.Host == "" || strings.EqualFold(from.Host, r.Host) {
		return text
	}
	return text + " Its page is of " + origin + ", and the request is for the host " + r.Host +
		". If you opened the dashboard by the first of these, a proxy replaces the host. The proxy has to pass " +
		"it on (nginx: proxy_set_header Host $http_host), or the dashboard has to trust that origin (midge serve " +
		"--trusted-origin, Config.TrustedOrigins)."
}

func unsafe(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

// cookieAlone reports whether a request has a cookie, but no header that names the site that sent it.
// http.CrossOriginProtection lets such a request pass, because all current browsers send such a header.
func cookieAlone(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" && r.Header.Get("Cookie") != ""
}

// recovered logs a panic in a page's handler, and answers the request with an error.
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

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/format"
)

type viewerKey struct{}

// viewer is who sent a request.
type viewer struct {
	user  access.User
	still func() error // asks again who sent the request, and returns an error if it may not be served any more
}

func viewerOf(ctx context.Context) viewer {
	v, _ := ctx.Value(viewerKey{}).(viewer)
	return v
}

func userOf(ctx context.Context) access.User { return viewerOf(ctx).user }

// who returns the user of a request, or an error that names the reason if there is none.
func (s *server) who(r *http.Request) (access.User, error) {
	if s.cfg.Who != nil {
		if user, ok := s.cfg.Who(r); ok && user.May(access.Read) {
			return user, nil
		}
		return access.User{}, &statusError{http.StatusForbidden, "You are not permitted to see this dashboard."}
	}
	for { // a browser may have sent several sessions, of which another process has ended the first
		user, until, ok := s.cfg.Users.Session(r)
		switch {
		case !ok || !user.May(access.Read):
			return access.User{}, errLogin
		case !s.logouts.ended(r.Context(), user.Name, until):
			return user, nil
		}
		s.cfg.Users.EndSession(r)
	}
}

// errLogin asks the viewer to log in.
var errLogin = &statusError{http.StatusUnauthorized, "Please log in."}

// loginData is the data of the login page.
type loginData struct {
	ByToken             bool // the page asks for the token instead of a name and a password
	Name, Back, Problem string
}

// back returns its argument if that is a path of this dashboard, or else the path of the overview, so that no
// redirection leads to another site.
func (s *server) back(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(to, s.cfg.Base+"/") ||
		strings.Contains(u.Path, "//") || strings.Contains(u.Path, "/..") || strings.ContainsAny(to, "\\\r\n\t") {
		return s.cfg.Base + "/"
	}
	return to
}

// cameFrom returns the page of the dashboard from which a request came, or else its first page.
func (s *server) cameFrom(r *http.Request) string {
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		return s.back(from.RequestURI())
	}
	return s.back("")
}

// clientOf returns the address of the client of a request. A proxy that Config.TrustedProxies names writes
// into X-Forwarded-For from whom it got the request, behind the addresses that it received there. So the
// client is the last address there that is not a trusted proxy. From anybody else the header is not read.
func (s *server) clientOf(r *http.Request) string {
	client := r.RemoteAddr
	told := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, address := range slices.Backward(told) {
		if !s.trusted(client) {
			break
		}
		if address = strings.TrimSpace(address); !addressOf(address).IsValid() {
			break
		}
		client = address
	}
	return client
}

// trusted reports whether an address is that of a trusted proxy.
func (s *server) trusted(address string) bool {
	addr := addressOf(address)
	return slices.ContainsFunc(s.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// addressOf reads an address with or without a port. It returns the zero Addr for any other text.
func addressOf(text string) netip.Addr {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	addr, _ := netip.ParseAddr(text)
	return addr.Unmap().WithZone("")
}

// overTLS reports whether the browser uses TLS, even if a proxy in front of this process terminates it. A
// client that forges the headers gets a cookie that its browser does not send.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://") ||
		r.Header.Get("X-Forwarded-Proto") == "https"
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	v.Page, v.Title, v.Bare = "login", "Log in", true
	d := loginData{ByToken: s.byToken, Name: r.PostFormValue("name"), Back: s.back(r.FormValue("back"))}
	v.Data = &d
	if r.Method != http.MethodPost && (!s.byToken || !r.URL.Query().Has("token")) {
		s.render(w, r, http.StatusOK, v)
		return
	}
	user, err := s.admit(r)
	var throttled *access.ThrottledError
	switch {
	case errors.As(err, &throttled):
		w.Header().Set("Retry-After", strconv.Itoa(int(throttled.After.Seconds())+1))
		d.Problem = "Too many logins have failed. Try again in " + format.Duration(throttled.After) + "."
		s.render(w, r, http.StatusTooManyRequests, v)
		return
	case err != nil:
		d.Problem = "The name or the password is wrong."
		if s.byToken {
			d.Problem = "The secret is wrong. If the process has restarted, open the address that it printed then."
		} else if !errors.Is(err, access.ErrDenied) {
			d.Problem = "The file of the users cannot be read."
		}
		s.render(w, r, http.StatusUnauthorized, v)
		return
	}
	cookies, err := s.cfg.Users.Cookies(user, s.cfg.Base+"/", overTLS(r))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	for _, cookie := range cookies {
		http.SetCookie(w, cookie)
	}
	http.Redirect(w, r, d.Back, http.StatusSeeOther)
}

// admit returns the user who logs in by a request.
func (s *server) admit(r *http.Request) (access.User, error) {
	if s.byToken {
		return s.cfg.Users.LoginByToken(r.FormValue("token"))
	}
	return s.cfg.Users.Login(r, r.PostFormValue("name"), r.PostFormValue("password"))
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	for { // a browser may have sent several, each in a cookie of another name or path
		user, until, ok := s.cfg.Users.Session(r)
		if !ok {
			break
		}
		s.cfg.Users.EndSession(r)
		s.logouts.end(r.Context(), user.Name, until)
	}
	http.SetCookie(w, s.cfg.Users.EndCookie(s.cfg.Base+"/", overTLS(r)))
	http.Redirect(w, r, s.cfg.Base+"/login", http.StatusSeeOther)
}

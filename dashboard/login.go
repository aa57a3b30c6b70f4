package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"
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

// who returns the user of a request, or an error that says why there is none.
func (s *server) who(r *http.Request) (access.User, error) {
	switch {
	case s.cfg.Who != nil:
		if user, ok := s.cfg.Who(r); ok && user.May(access.Read) {
			return user, nil
		}
		return access.User{}, &statusError{http.StatusForbidden, "You are not permitted to see this dashboard."}
	case s.cfg.Users != nil:
		user, until, ok := s.cfg.Users.Session(r)
		if ok && user.May(access.Read) && !s.logouts.ended(r.Context(), user.Name, until) {
			return user, nil
		}
		return access.User{}, errLogin
	case local(r):
		return access.User{Name: "local", Role: access.Admin}, nil
	}
	return access.User{}, &statusError{http.StatusForbidden, loopbackOnly}
}

// loopbackOnly is the answer to requests from other machines if there is no login.
const loopbackOnly = "This dashboard has no login, so it answers only requests that come directly from the " +
	"machine on which it runs. Open it on that machine or through an SSH tunnel. To serve other machines, the " +
	"dashboard needs a login: midge serve takes --users, and an application sets Config.Who or Config.Users."

// errLogin asks the viewer to log in.
var errLogin = &statusError{http.StatusUnauthorized, "Please log in."}

// loginData is the data of the login page.
type loginData struct {
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

// overTLS reports whether the browser uses TLS, even if a proxy in front of this process terminates it.
func overTLS(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

func (s *server) login(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	v.Page, v.Title, v.Bare = "login", "Log in", true
	d := loginData{Name: r.PostFormValue("name"), Back: s.back(r.FormValue("back"))}
	v.Data = &d
	if r.Method != http.MethodPost {
		s.render(w, r, http.StatusOK, v)
		return
	}
	user, err := s.cfg.Users.Login(r.Context(), r.RemoteAddr, d.Name, r.PostFormValue("password"))
	var throttled *access.ThrottledError
	switch {
	case errors.As(err, &throttled):
		w.Header().Set("Retry-After", strconv.Itoa(int(throttled.After.Seconds())+1))
		d.Problem = "Too many logins have failed. Try again in " + format.Duration(throttled.After) + "."
		s.render(w, r, http.StatusTooManyRequests, v)
		return
	case err != nil:
		d.Problem = "The name or the password is wrong."
		if !errors.Is(err, access.ErrDenied) {
			d.Problem = "The file of the users cannot be read."
		}
		s.render(w, r, http.StatusUnauthorized, v)
		return
	}
	cookie, err := s.cfg.Users.Cookie(user, s.cfg.Base+"/", overTLS(r))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, d.Back, http.StatusSeeOther)
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	if user, until, ok := s.cfg.Users.Session(r); ok {
		s.cfg.Users.EndSession(r)
		s.logouts.end(r.Context(), user.Name, until)
	}
	http.SetCookie(w, access.EndCookie(s.cfg.Base+"/", overTLS(r)))
	http.Redirect(w, r, s.cfg.Base+"/login", http.StatusSeeOther)
}

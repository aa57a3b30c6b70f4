package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// SessionLife is how long a login holds.
const SessionLife = 12 * time.Hour

// SessionCookie names the cookie of a session.
const SessionCookie = "midge_session"

// Login returns the user of a name and a password. remote is the address from which the login came, in the
// form of http.Request.RemoteAddr. The error is [ErrDenied] for a wrong name or password. It is a
// *[ThrottledError] if the address, or its network, has failed 20 times within a minute with that name. Only
// two passwords are hashed at a time: if ctx ends while Login waits, its error is the cause of ctx. Any other
// error tells why the file of users cannot be read. Failures count by name, too, because all logins through
// a proxy come from one address: users with other names can go on.
func (u *Users) Login(ctx context.Context, remote, name, password string) (User, error) {
	all, err := u.file.get()
	if err != nil {
		return User{}, err
	}
	from := tryOf(remote, name)
	if err := u.throttle.charge(from); err != nil {
		return User{}, err
	}
	select {
	case u.hashing <- struct{}{}:
		defer func() { <-u.hashing }()
	case <-ctx.Done():
		return User{}, context.Cause(ctx)
	}
	e, known := all.find(name)
	if !known {
		e.password = u.dummy() // an unknown name takes as long as a known one
	}
	if len(password) > maxPassword || !e.password.is(password) || !known {
		return User{}, ErrDenied
	}
	u.throttle.refund(from)
	return e.User, nil
}

// Cookie returns the cookie of a session of [SessionLife] that begins now. Browsers send it for the paths
// below path, and only over TLS if secure is set. The error is [ErrDenied] if the file does not have the user
// any more.
func (u *Users) Cookie(user User, path string, secure bool) (*http.Cookie, error) {
	all, err := u.file.get()
	if err != nil {
		return nil, err
	}
	e, ok := all.find(user.Name)
	if !ok {
		return nil, ErrDenied
	}
	until := u.freshEnd(e.Name, time.Now().Add(SessionLife).UnixMicro())
	text := base64.RawURLEncoding.EncodeToString
	c := cookie(path, secure) //nolint:gosec // the caller knows whether it serves TLS
	c.Value = text([]byte(e.Name)) + "." + strconv.FormatInt(until, 10) + "." + text(all.sign(e, until))
	c.MaxAge = int(SessionLife / time.Second)
	return c, nil
}

// EndSession ends the session that a request carries, if it carries one: this process does not accept its
// cookie any more. Another process that shares the file accepts the cookie until the session is over, and so
// does this process after a restart, unless they know more: a dashboard keeps the logouts in its storage. A
// new password or role of a user ends the user's sessions everywhere.
func (u *Users) EndSession(r *http.Request) {
	e, until, ok := u.session(r)
	if !ok {
		return
	}
	now := time.Now().UnixMicro()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended == nil {
		u.ended = make(map[session]bool)
	}
	maps.DeleteFunc(u.ended, func(s session, _ bool) bool { return s.until <= now })
	u.ended[session{e.Name, until}] = true
}

// freshEnd returns the end of a new session. If an ended session of the user has the same end, the new one is
// shorter by a microsecond, because a session is known by its user and its end.
func (u *Users) freshEnd(name string, until int64) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	for u.ended[session{name, until}] {
		until--
	}
	return until
}

// session identifies a session. Two sessions of a user that begin in the same microsecond are one.
type session struct {
	name  string
	until int64 // in microseconds since 1970
}

// EndCookie returns the cookie that removes a session from the browser. path and secure are the same as for
// [Users.Cookie]. Call [Users.EndSession], too.
func EndCookie(path string, secure bool) *http.Cookie {
	c := cookie(path, secure) //nolint:gosec // the caller knows whether it serves TLS
	c.MaxAge = -1
	return c
}

func cookie(path string, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // as above
		Name: SessionCookie, Path: path, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// Who returns the user whose session a request carries, with the role that the file gives the user now. It
// reports false if the request carries no session, or one that is over, was forged, or is older than the
// user's password or role, and also if the file cannot be read.
func (u *Users) Who(r *http.Request) (User, bool) {
	user, _, ok := u.Session(r)
	return user, ok
}

// Session is like Who, and also returns when the session is over. A user and this moment identify a session.
func (u *Users) Session(r *http.Request) (user User, until time.Time, ok bool) {
	e, end, ok := u.session(r)
	if !ok {
		return User{}, time.Time{}, false
	}
	return e.User, time.UnixMicro(end), true
}

// session returns the user and the end of the session that a request carries. It reports false when Who does.
func (u *Users) session(r *http.Request) (e entry, until int64, ok bool) {
	c, err := r.Cookie(SessionCookie)
	if err != nil || len(c.Value) > 512 {
		return entry{}, 0, false
	}
	fields := strings.Split(c.Value, ".")
	if len(fields) != 3 {
		return entry{}, 0, false
	}
	name, err1 := base64.RawURLEncoding.DecodeString(fields[0])
	until, err2 := strconv.ParseInt(fields[1], 10, 64)
	signature, err3 := base64.RawURLEncoding.DecodeString(fields[2])
	all, err4 := u.file.get()
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return entry{}, 0, false
	}
	e, ok = all.find(string(name))
	if !ok || !hmac.Equal(signature, all.sign(e, until)) || time.Now().UnixMicro() >= until {
		return entry{}, 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return e, until, !u.ended[session{e.Name, until}]
}

// sign returns the signature of a session. It covers the user's name, role and hashed password, and the end.
func (r *register) sign(e entry, until int64) []byte {
	mac := hmac.New(sha256.New, r.key)
	end := strconv.FormatInt(until, 10)
	for _, part := range []string{"session", e.Name, string(e.Role), e.password.String(), end} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = mac.Write(n[:])
		_, _ = mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
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

// DeviceLife is how long a browser in which a user has logged in stays known.
const DeviceLife = 180 * 24 * time.Hour

// SessionCookie names the cookie of a session, and DeviceCookie that of a browser in which a user has logged
// in. Over TLS "__Host-" stands before the name if the path is "/", and "__Secure-" otherwise, so that
// browsers take such cookies from no other host of the domain, and from no page without TLS.
const (
	SessionCookie = "midge_session"
	DeviceCookie  = "midge_device"
)

// The prefixes of the names of cookies over TLS.
const (
	hostPrefix   = "__Host-"
	securePrefix = "__Secure-"
)

// Login returns the user of a name and a password, which a request brings. The error is [ErrDenied] for a
// wrong name or password. It is a *[ThrottledError] if the address of the request (RemoteAddr, or the /64
// network of an IPv6 address) has failed 20 times within a minute, or if all addresses together have failed
// so often with that name. Neither count holds for a browser that has logged in under that name before, as
// its cookie proves: see [Users.Cookies]. Such a browser may itself fail 20 times a minute. So whoever
// guesses the password of a user locks out neither the user's own browser nor other users.
//
// A wrong name is denied after the time that passwords lately took, but takes no processor time, so that
// made-up names delay no login. Only two passwords are hashed at a time, and one more of a browser that has
// logged in before. If the context of the request ends while Login waits, the error is the cause of that end.
// Any other error names the reason why the file of users cannot be read.
func (u *Users) Login(r *http.Request, name, password string) (User, error) {
	all, err := u.file.get()
	if err != nil {
		return User{}, err
	}
	keys, turns := []string{"address " + origin(r.RemoteAddr), "name " + digest(name)}, u.hashing
	if device, ok := all.device(r, name); ok {
		keys, turns = []string{"device " + device}, u.hashingKnown
	}
	if err := u.throttle.charge(keys...); err != nil {
		return User{}, err
	}
	e, known := all.find(name)
	if !known || len(password) > maxPassword {
		if err := u.pauses.pause(r.Context(), u.rounds); err != nil {
			return User{}, err
		}
		return User{}, ErrDenied
	}
	begun := time.Now()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
	case <-r.Context().Done():
		return User{}, context.Cause(r.Context())
	}
	right := e.password.is(password)
	u.pauses.add(time.Since(begun))
	if !right {
		return User{}, ErrDenied
	}
	u.throttle.refund(keys...)
	return e.User, nil
}

// Cookies returns the cookie of a session of [SessionLife] that begins now, and one of [DeviceLife] by which
// [Users.Login] recognizes the browser. Browsers send them for the paths below path, and only over TLS if
// secure is set. The error is [ErrDenied] if the file does not have the user any more.
func (u *Users) Cookies(user User, path string, secure bool) ([]*http.Cookie, error) {
	all, err := u.file.get()
	if err != nil {
		return nil, err
	}
	e, ok := all.find(user.Name)
	if !ok {
		return nil, ErrDenied
	}
	until := u.freshEnd(e.Name, time.Now().Add(SessionLife).UnixMicro())
	//nolint:gosec // the caller knows whether it serves TLS
	session, device := cookie(SessionCookie+u.mark, path, secure), cookie(DeviceCookie+u.mark, path, secure)
	session.Value = signed(e.Name, strconv.FormatInt(until, 10), all.sign(e, until))
	session.MaxAge = int(SessionLife / time.Second)
	id := rand.Text()
	device.Value = signed(e.Name, id, all.signDevice(e.Name, id))
	device.MaxAge = int(DeviceLife / time.Second)
	return []*http.Cookie{session, device}, nil
}

// EndSession ends the session that a request carries, if it carries one: this process does not accept its
// cookie any more. Another process that shares the file accepts the cookie until the session is over, and so
// does this process after a restart, unless they have the logout: a dashboard keeps the logouts in its
// storage. A new password or role of a user ends the user's sessions everywhere.
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
// [Users.Cookies]. Call [Users.EndSession], too.
func (u *Users) EndCookie(path string, secure bool) *http.Cookie {
	c := cookie(SessionCookie+u.mark, path, secure) //nolint:gosec // the caller knows whether it serves TLS
	c.MaxAge = -1
	return c
}

func cookie(name, path string, secure bool) *http.Cookie {
	switch {
	case secure && path == "/":
		name = hostPrefix + name
	case secure:
		name = securePrefix + name
	}
	return &http.Cookie{ //nolint:gosec // as above
		Name: name, Path: path, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// valuesOf returns the values of all cookies of a request that cookie may have named, the safest first. A
// browser sends several if pages below other paths, or other hosts of the domain, have set some too. A cookie
// without a prefix is not taken over TLS.
func valuesOf(r *http.Request, name string) (values []string) {
	prefixes := []string{hostPrefix, securePrefix, ""}
	if r.TLS != nil {
		prefixes = prefixes[:2]
	}
	for _, prefix := range prefixes {
		for _, c := range r.CookiesNamed(prefix + name) {
			values = append(values, c.Value)
		}
	}
	return values
}

// signed returns the value of a cookie: a user, a text without a point, and a signature of both.
func signed(name, text string, signature []byte) string {
	encoded := base64.RawURLEncoding.EncodeToString
	return encoded([]byte(name)) + "." + text + "." + encoded(signature)
}

// parts returns the arguments of signed. The signature is not checked yet.
func parts(value string) (name, text string, signature []byte, ok bool) {
	fields := strings.Split(value, ".")
	if len(fields) != 3 || len(value) > 512 {
		return "", "", nil, false
	}
	user, err1 := base64.RawURLEncoding.DecodeString(fields[0])
	signature, err2 := base64.RawURLEncoding.DecodeString(fields[2])
	return string(user), fields[1], signature, err1 == nil && err2 == nil
}

// Who returns the user whose session a request carries, with the role that the user now has in the file. It
// reports false if the request carries no session, or a session that is over, was forged, or is older than
// the user's password or role, and also if the file cannot be read.
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

// session returns the user and the end of the session that a request carries. It reports false if Who does.
func (u *Users) session(r *http.Request) (e entry, until int64, ok bool) {
	all, err := u.file.get()
	if err != nil {
		return entry{}, 0, false
	}
	for _, value := range valuesOf(r, SessionCookie+u.mark) {
		if e, until, ok = u.sessionOf(&all, value); ok {
			return e, until, true
		}
	}
	return entry{}, 0, false
}

// sessionOf returns the user and the end of the session that the value of a cookie names.
func (u *Users) sessionOf(all *register, value string) (e entry, until int64, ok bool) {
	name, end, signature, ok := parts(value)
	until, err := strconv.ParseInt(end, 10, 64)
	if !ok || err != nil {
		return entry{}, 0, false
	}
	e, ok = all.find(name)
	if !ok || !hmac.Equal(signature, all.sign(e, until)) || time.Now().UnixMicro() >= until {
		return entry{}, 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return e, until, !u.ended[session{e.Name, until}]
}

// sign returns the signature of a session. It covers the user's name, role and hashed password, and the end.
func (r *register) sign(e entry, until int64) []byte {
	return r.mac("session", e.Name, string(e.Role), e.password.String(), strconv.FormatInt(until, 10))
}

// device returns the id of the browser that sent a request, and reports whether somebody has logged in there
// as the user with a name.
func (r *register) device(req *http.Request, name string) (id string, ok bool) {
	for _, value := range valuesOf(req, DeviceCookie) {
		user, id, signature, ok := parts(value)
		if ok && user == name && hmac.Equal(signature, r.signDevice(user, id)) {
			return id, true
		}
	}
	return "", false
}

// signDevice returns the signature of a browser in which a user has logged in.
func (r *register) signDevice(name, id string) []byte { return r.mac("device", name, id) }

// mac returns a signature of texts.
func (r *register) mac(texts ...string) []byte {
	mac := hmac.New(sha256.New, r.key)
	for _, part := range texts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = mac.Write(n[:])
		_, _ = mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

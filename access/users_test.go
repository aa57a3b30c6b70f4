package access

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

const home = "127.0.0.1:4711"

// users makes a file of users. Their passwords are hashed with few rounds, so that tests are quick.
func users(t *testing.T, all ...User) *Users {
	t.Helper()
	u, err := CreateUsers(filepath.Join(t.TempDir(), "users"))
	if err != nil {
		t.Fatal(err)
	}
	u.rounds = leastRounds
	for _, user := range all {
		if err := u.Set(user, "password of "+user.Name); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// carrying returns a request that carries a new session of a user.
func carrying(t *testing.T, u *Users, user User) *http.Request {
	t.Helper()
	all, err := u.Cookies(user, "/", true)
	if err != nil {
		t.Fatal(err)
	}
	r := &http.Request{Header: make(http.Header)}
	for _, c := range all {
		r.AddCookie(c)
	}
	return r
}

// from returns a login that comes from an address.
func from(t *testing.T, remote string) *http.Request {
	t.Helper()
	return (&http.Request{Header: make(http.Header), RemoteAddr: remote}).WithContext(t.Context())
}

func TestRolesPermitWhatTheTableSays(t *testing.T) {
	for role, want := range map[Role][]Verb{
		Viewer:   {Read},
		Worker:   {Read, Payloads, Enqueue, Work},
		Operator: {Read, Payloads, Operate},
		Admin:    Verbs(),
		"":       nil,
		"root":   nil,
	} {
		for _, v := range append(Verbs(), "", "fly") {
			if got := role.May(v); got != slices.Contains(want, v) {
				t.Errorf("%s may %s: got %t, want %t", role, v, got, !got)
			}
		}
	}
	for _, role := range Roles() {
		if err := role.Check(); err != nil {
			t.Error(err)
		}
	}
	if Role("root").Check() == nil {
		t.Error("root is a role")
	}
}

func TestLogin(t *testing.T) {
	ann := User{"ann@example.com", Operator}
	u := users(t, ann, User{"bob", Viewer})
	got, err := u.Login(from(t, home), ann.Name, "password of "+ann.Name)
	if err != nil || got != ann {
		t.Errorf("got %v, %v, want %v", got, err, ann)
	}
	for _, c := range [][2]string{
		{ann.Name, "password of bob"},
		{"bob", ""},
		{"carl", "password of carl"},
		{"", ""},
		{"bob", strings.Repeat("x", maxPassword+1)},
	} {
		if _, err := u.Login(from(t, home), c[0], c[1]); !errors.Is(err, ErrDenied) {
			t.Errorf("%q with %q: got %v, want ErrDenied", c[0], c[1], err)
		}
	}
	all, err := u.List()
	if err != nil || !slices.Equal(all, []User{ann, {"bob", Viewer}}) {
		t.Errorf("got %v, %v", all, err)
	}
}

// TestNewPasswordsTakeSoManyRounds checks the rounds of a new password and of its check. Each takes a second
// and more under the race detector; TestLogin checks wrong passwords with fewer rounds.
func TestNewPasswordsTakeSoManyRounds(t *testing.T) {
	if u := newUsers("users"); u.rounds != 600_000 {
		t.Errorf("%d rounds, want 600,000", u.rounds)
	}
	h, err := hash("correct horse", rounds)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseHash(h.String())
	if err != nil || again.rounds != 600_000 || !again.is("correct horse") {
		t.Errorf("a hash of %d rounds, %v, is not that of its password", again.rounds, err)
	}
}

func TestBadUsers(t *testing.T) {
	u := users(t)
	for _, c := range []struct {
		user     User
		password string
	}{
		{User{"", Viewer}, "long enough"},
		{User{"a b", Viewer}, "long enough"},
		{User{"ann\nkey", Viewer}, "long enough"},
		{User{strings.Repeat("a", 65), Viewer}, "long enough"},
		{User{"ann", "root"}, "long enough"},
		{User{"ann", Viewer}, "short"},
		{User{"ann", Viewer}, "nine byte"},
		{User{"ann", Viewer}, "Password123"}, // known
		{User{"ann", Viewer}, "1qaz2wsx3edc"},
		{User{"ann", Viewer}, "1212121212121212"},
		{User{"ann@example.com", Viewer}, "Ann@example.com"},
		{User{"ann", Viewer}, ""},
		{User{"ann", Viewer}, strings.Repeat("x", 1025)},
	} {
		var invalid *storage.InvalidError
		if err := u.Set(c.user, c.password); !errors.As(err, &invalid) {
			t.Errorf("%q with a password of %d bytes: got %v, want an InvalidError", c.user, len(c.password), err)
		}
	}
	if err := u.Remove("ann"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed nobody: got %v, want fs.ErrNotExist", err)
	}
	if _, err := CreateUsers(u.file.path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made again: got %v, want fs.ErrExist", err)
	}
	if _, err := OpenUsers(u.file.path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened nothing: got %v, want fs.ErrNotExist", err)
	}
}

func TestASessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := User{"ann", Operator}
		u := users(t, ann)
		r := carrying(t, u, ann)
		who := func(want bool) {
			t.Helper()
			if got, ok := u.Who(r); ok != want || ok && got.Name != "ann" {
				t.Errorf("got %v, %t, want %t", got, ok, want)
			}
		}
		who(true)
		time.Sleep(SessionLife - 2*time.Second)
		who(true)
		time.Sleep(2 * time.Second)
		who(false)
		for what, end := range map[string]func() error{
			"another role":     func() error { return u.Set(User{"ann", Admin}, "") },
			"another password": func() error { return u.Set(User{"ann", Operator}, "a new password") },
			"no user":          func() error { return u.Remove("ann") },
		} {
			if err := u.Set(ann, "password of ann"); err != nil {
				t.Fatal(err)
			}
			r = carrying(t, u, ann)
			who(true)
			if err := end(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			who(false)
		}
	})
}

// TestALogoutEndsASession checks that a cookie is not accepted after the logout, in whatever spelling, and
// that a login within the same second begins another session.
func TestALogoutEndsASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob := User{"ann", Operator}, User{"bob", Operator}
		u := users(t, ann, bob)
		first, others := carrying(t, u, ann), carrying(t, u, bob)
		u.EndSession(first)
		u.EndSession(&http.Request{}) // a request without a session
		if _, ok := u.Who(first); ok {
			t.Error("a session admits its user after the logout")
		}
		respelt := first.Clone(t.Context())
		respelt.Header.Set("Cookie", strings.Replace(first.Header.Get("Cookie"), ".", ".+", 1))
		if _, ok := u.Who(respelt); ok {
			t.Error("a session admits its user after the logout by another spelling of its end")
		}
		second := carrying(t, u, ann)
		for _, r := range []*http.Request{others, second} {
			if _, ok := u.Who(r); !ok {
				t.Error("a logout ends another session")
			}
		}
		time.Sleep(SessionLife)
		u.EndSession(carrying(t, u, bob))
		if len(u.ended) != 1 {
			t.Errorf("%d sessions are kept, want that which is not over", len(u.ended))
		}
	})
}

func TestAForgedSessionAdmitsNobody(t *testing.T) {
	ann, bob := User{"ann", Viewer}, User{"bob", Admin}
	u, other := users(t, ann, bob), users(t, ann, bob)
	all, err := u.Cookies(ann, "/", true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
			t.Errorf("the cookie is %v", c)
		}
	}
	fields := strings.Split(all[0].Value, ".")
	for what, value := range map[string]string{
		"another name": strings.Join([]string{"Ym9i", fields[1], fields[2]}, "."),
		"another end":  strings.Join([]string{fields[0], "9999999999999999", fields[2]}, "."),
		"no signature": strings.Join([]string{fields[0], fields[1], ""}, "."),
		"two fields":   "Ym9i.9999999999999999",
		"nothing":      "",
		"much":         strings.Repeat(".", 5000),
		"a browser":    all[1].Value,
	} {
		r := &http.Request{Header: http.Header{"Cookie": {SessionCookie + "=" + value}}}
		if who, ok := u.Who(r); ok {
			t.Errorf("%s: it is %v", what, who)
		}
	}
	if _, ok := other.Who(carrying(t, u, bob)); ok {
		t.Error("a session of another file is good")
	}
	if _, ok := u.Who(&http.Request{}); ok {
		t.Error("no cookie is good")
	}
}

func TestTheFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := User{"ann", Operator}
		u := users(t, ann)
		beside, err := OpenUsers(u.file.path)
		if err != nil {
			t.Fatal(err)
		}
		r := carrying(t, beside, ann)
		if err := u.Remove("ann"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, ok := beside.Who(r); ok {
			t.Error("a user who was removed is in after 5 s")
		}
	})
}

func TestAFileThatCannotBeReadAdmitsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann := User{"ann", Operator}
		u := users(t, ann)
		r := carrying(t, u, ann)
		good, err := os.ReadFile(u.file.path)
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(string(good), "user ")
		for what, text := range map[string]string{
			"a bad line":  string(good) + "user bob\n",
			"a bad role":  strings.ReplaceAll(string(good), "operator", "root"),
			"no key":      "user " + line,
			"a user more": string(good) + "user " + line,
			"few rounds":  strings.ReplaceAll(string(good), "$10000$", "$1$"),
			"a huge file": string(good) + strings.Repeat("#\n", maxFile),
		} {
			if err := os.WriteFile(u.file.path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if _, ok := u.Who(r); ok {
				t.Errorf("%s: the session is good", what)
			}
			if _, err := u.Login(from(t, home), "ann", "password of ann"); err == nil || errors.Is(err, ErrDenied) {
				t.Errorf("%s: a login gives %v, want what is wrong with the file", what, err)
			}
		}
		if err := os.WriteFile(u.file.path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, ok := u.Who(r); !ok {
			t.Error("the session is not good though the file was mended")
		}
	})
}

func TestOthersMayNotReadTheFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // the mode of a file has no permissions for others there
	}
	u := users(t, User{"ann", Admin})
	info, err := os.Stat(u.file.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("permissions %v, %v, want 0600", info.Mode(), err)
	}
	if err := os.Chmod(u.file.path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenUsers(u.file.path); err == nil || !strings.Contains(err.Error(), "0600") {
		t.Errorf("got %v, want that the permissions are refused", err)
	}
}

func TestTwoWritersOfTheFile(t *testing.T) {
	u := users(t, User{"ann", Admin})
	if err := os.WriteFile(u.file.path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.Remove("ann"); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want a refusal", err)
	}
	if err := os.Remove(u.file.path + ".new"); err != nil {
		t.Fatal(err)
	}
	if err := u.Remove("ann"); err != nil {
		t.Error(err)
	}
}

func TestOrigins(t *testing.T) {
	for given, want := range map[string]string{
		"10.1.2.3:80":               "10.1.2.3",
		"[::ffff:10.1.2.3]:80":      "10.1.2.3",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64",
		"[2001:db8:1:2:9::1]:81":    "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":         "fe80::/64",
		"10.1.2.3":                  "10.1.2.3",
		"@":                         "",
	} {
		if got := origin(given); got != want {
			t.Errorf("%s: got %q, want %q", given, got, want)
		}
	}
}

func TestALoginThatWaitsEndsWithItsContext(t *testing.T) {
	u := users(t, User{"ann", Viewer})
	for range hashesAtOnce {
		u.hashing <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u.pauses.add(time.Hour)
	for _, name := range []string{"ann", "nobody"} {
		if _, err := u.Login(from(t, home).WithContext(ctx), name, "password of ann"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
}

// FuzzUsers searches for a text that is read as users who are not in it, or that makes the parser panic.
func FuzzUsers(f *testing.F) {
	f.Add("key AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nuser ann admin pbkdf2-sha256$600000$AAAAAAAAAAA$x\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseUsers(text)
		if err != nil {
			return
		}
		for _, e := range r.users {
			if !strings.Contains(text, e.Name) || e.Role.Check() != nil || len(e.password.sum) != 32 {
				t.Errorf("%q gives %v", text, e.User)
			}
		}
	})
}

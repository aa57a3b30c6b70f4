package access

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestOneUserLogsInByItsToken checks that only the token admits the user, and that processes with the same
// token share the sessions.
func TestOneUserLogsInByItsToken(t *testing.T) {
	local, token := User{"local", Admin}, rand.Text()
	u, err := OneUser(local, token)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := u.LoginByToken(token); err != nil || got != local {
		t.Errorf("by the token: %v, %v, want %v", got, err, local)
	}
	for _, other := range []string{"", token[1:], token + "A", rand.Text()} {
		if got, err := u.LoginByToken(other); !errors.Is(err, ErrDenied) {
			t.Errorf("by another token: %v, %v, want ErrDenied", got, err)
		}
	}
	for _, password := range []string{"", token} {
		if got, err := u.Login(from(t, home), "local", password); !errors.Is(err, ErrDenied) {
			t.Errorf("by name and password: %v, %v, want ErrDenied", got, err)
		}
	}
	replica, err := OneUser(local, token)
	if err != nil {
		t.Fatal(err)
	}
	r := carrying(t, u, local)
	if got, ok := replica.Who(r); !ok || got != local {
		t.Errorf("the session in another process: %v, %t", got, ok)
	}
	stranger, err := OneUser(local, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	for _, cookie := range r.Cookies() { // the same under the names of the other process
		r.AddCookie(&http.Cookie{Name: strings.Replace(cookie.Name, u.mark, stranger.mark, 1), Value: cookie.Value})
	}
	if got, ok := stranger.Who(r); ok {
		t.Errorf("the session in a process with another token: %v", got)
	}
	both := carrying(t, u, local)
	for _, cookie := range carrying(t, stranger, local).Cookies() {
		both.AddCookie(cookie)
	}
	for name, users := range map[string]*Users{"one": u, "the other": stranger} {
		if _, ok := users.Who(both); !ok {
			t.Errorf("a browser with the sessions of two processes is not admitted by %s", name)
		}
	}
	u.EndSession(r)
	if got, ok := u.Who(r); ok {
		t.Errorf("the session after its logout: %v", got)
	}
	if got, ok := u.Who(&http.Request{}); ok {
		t.Errorf("no session: %v", got)
	}
}

// TestOneUserIsNotChanged checks that no method writes a file.
func TestOneUserIsNotChanged(t *testing.T) {
	t.Chdir(t.TempDir())
	local := User{"local", Admin}
	u, err := OneUser(local, rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Set(User{"ann", Viewer}, "correct horse"); err == nil {
		t.Error("a user was added")
	}
	if err := u.Remove("local"); err == nil {
		t.Error("the user was removed")
	}
	if all, err := u.List(); err != nil || !slices.Equal(all, []User{local}) {
		t.Errorf("the users are %v, %v", all, err)
	}
}

func TestAFileHasNoToken(t *testing.T) {
	u := users(t, User{"ann", Admin})
	for _, token := range []string{"", "password of ann", rand.Text()} {
		if got, err := u.LoginByToken(token); !errors.Is(err, ErrDenied) {
			t.Errorf("by %q: %v, %v, want ErrDenied", token, got, err)
		}
	}
}

func TestTheTokenOfOneUserIsLong(t *testing.T) {
	for _, token := range []string{
		"", "changeme", strings.Repeat("a", 21), strings.Repeat("a", 1025), "22 characters, but not",
		strings.Repeat("a", 21) + "%",
	} {
		var invalid *storage.InvalidError
		if _, err := OneUser(User{"local", Admin}, token); !errors.As(err, &invalid) {
			t.Errorf("%q: got %v, want an InvalidError", token, err)
		} else if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
	for _, user := range []User{{"", Admin}, {"a b", Admin}, {"local", "root"}} {
		var invalid *storage.InvalidError
		if _, err := OneUser(user, rand.Text()); !errors.As(err, &invalid) {
			t.Errorf("%v: got %v, want an InvalidError", user, err)
		}
	}
}

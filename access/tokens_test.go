package access

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// mint adds a token to a file, and returns the token.
func mint(t *testing.T, path string, g Grant) string {
	t.Helper()
	secret, err := CreateToken(path, g)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "tokens")
		first := mint(t, path, Grant{ID: "app", Verbs: []Verb{Read, Enqueue}, Queues: []string{"mail", "mail:*"}})
		second := mint(t, path, Grant{Verbs: []Verb{Read}, Queues: []string{"*"}, Expires: time.Now().Add(time.Hour)})
		if !strings.HasPrefix(first, "mdg_app_") || len(first) != len("mdg_app_")+32 || first == second {
			t.Errorf("tokens %s and %s", first, second)
		}
		text, err := os.ReadFile(path)
		if err != nil || strings.Contains(string(text), first[len("mdg_app_"):]) {
			t.Errorf("the file tells the token: %s, %v", text, err)
		}
		tokens, err := OpenTokens(path)
		if err != nil {
			t.Fatal(err)
		}
		good := func(secret string, want error) Grant {
			t.Helper()
			g, err := tokens.Grant(home, secret)
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			return g
		}
		if g := good(first, nil); g.ID != "app" || len(g.Verbs) != 2 || len(g.Queues) != 2 {
			t.Errorf("got %+v", g)
		}
		for _, secret := range []string{"", "mdg_app_", first[:len(first)-1] + "!", strings.ToUpper(first), first + " "} {
			good(secret, ErrDenied)
		}
		good(second, nil)
		time.Sleep(time.Hour)
		good(second, ErrDenied) // it has ended
		third := mint(t, path, Grant{ID: "app-2", Verbs: []Verb{Read}, Queues: []string{"mail"}})
		if err := RemoveToken(path, "app"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		good(first, ErrDenied)
		good(third, nil)
		if err := RemoveToken(path, "app"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("removed nothing: %v", err)
		}
		if all, err := tokens.List(); err != nil || len(all) != 2 {
			t.Errorf("got %v, %v", all, err)
		}
	})
}

func TestWhatAGrantPermits(t *testing.T) {
	g := Grant{Verbs: []Verb{Read, Enqueue}, Queues: []string{"mail", "news:*", "q?"}}
	for _, c := range []struct {
		verb   Verb
		queues []string
		want   bool
	}{
		{Read, []string{"mail"}, true},
		{Enqueue, []string{"mail", "news:a", "q1"}, true},
		{Enqueue, []string{"mail", "other"}, false},
		{Enqueue, []string{"other", "mail"}, false},
		{Work, []string{"mail"}, false},
		{Read, nil, false},
		{Read, []string{"mail2"}, false},
		{Read, []string{"q12"}, false},
		{Read, []string{""}, false},
	} {
		if got := g.May(c.verb, c.queues...); got != c.want {
			t.Errorf("%s %v: got %t, want %t", c.verb, c.queues, got, c.want)
		}
	}
	if all := (&Grant{Verbs: Verbs(), Queues: []string{"*"}}); all.May(Read, "midge.ledger") || !all.May(Read, "mail") {
		t.Error("a grant of all queues has midge's own")
	}
}

func TestBadTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	for what, g := range map[string]Grant{
		"no verb":     {Queues: []string{"a"}},
		"no queue":    {Verbs: []Verb{Read}},
		"a bad verb":  {Verbs: []Verb{"fly"}, Queues: []string{"a"}},
		"a bad queue": {Verbs: []Verb{Read}, Queues: []string{"a b"}},
		"a bad id":    {ID: "a_b", Verbs: []Verb{Read}, Queues: []string{"a"}},
	} {
		var invalid *storage.InvalidError
		if _, err := CreateToken(path, g); !errors.As(err, &invalid) {
			t.Errorf("%s: got %v, want an InvalidError", what, err)
		}
	}
	mint(t, path, Grant{ID: "a", Verbs: []Verb{Read}, Queues: []string{"a"}})
	if _, err := CreateToken(path, Grant{ID: "a", Verbs: []Verb{Read}, Queues: []string{"a"}}); err == nil {
		t.Error("two tokens of one id")
	}
	if _, err := OpenTokens(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

func TestGuessedTokensAreThrottled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	secret := mint(t, path, Grant{Verbs: []Verb{Read}, Queues: []string{"a"}})
	tokens, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	var throttled *ThrottledError
	for range failuresAtOnce {
		if _, err := tokens.Grant(home, "mdg_a_guess"); !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}
	}
	if _, err := tokens.Grant(home, "mdg_a_guess"); !errors.As(err, &throttled) {
		t.Errorf("got %v, want a ThrottledError", err)
	}
	if _, err := tokens.Grant("10.0.0.1:1", "mdg_a_guess"); !errors.Is(err, ErrDenied) {
		t.Errorf("another address: %v", err)
	}
	if _, err := tokens.Grant(home, secret); err != nil {
		t.Errorf("a good token from an address that guesses: %v", err)
	}
}

func TestBearer(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer mdg_a_b": "mdg_a_b", "bearer  x ": "x", "Basic x": "", "": "", "Bearer": "",
	} {
		r := &http.Request{Header: http.Header{"Authorization": {header}}}
		if got := Bearer(r); got != want {
			t.Errorf("%q: got %q, want %q", header, got, want)
		}
	}
}

// FuzzTokens searches for a text whose tokens are written differently from how they were read, or are
// invalid.
func FuzzTokens(f *testing.F) {
	f.Add("token app read,enqueue mail,mail:* never " + strings.Repeat("00", 32) + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseTokens(text)
		if err != nil {
			return
		}
		for i := range all {
			again, err := parseTokens(all[i].line())
			if err != nil || len(again) != 1 || again[0].sum != all[i].sum || again[0].check() != nil {
				t.Errorf("%q becomes %v, %v", all[i].line(), again, err)
			}
		}
	})
}

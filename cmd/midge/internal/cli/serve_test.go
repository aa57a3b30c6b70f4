package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

func TestTheDashboardIsOpenToThisMachineAlone(t *testing.T) {
	r := newRig(t)
	golden(t, "serve", r.transcript("serve --listen 0.0.0.0:0", "serve --listen :0", "serve --listen 10.0.0.1:1 --users u.json",
		"serve --listen nonsense", "serve --tls-cert c.pem", "serve --base x", "serve --users /none", "serve --redact ''"))
}

// shared is a buffer that one goroutine writes and another reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write writes.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String is what was written.
func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTheDashboardIsServedUntilItIsStopped(t *testing.T) {
	r := newRig(t)
	r.night()
	ctx, stop := context.WithCancel(t.Context())
	said, code := &shared{}, make(chan int)
	go func() {
		code <- Run(ctx, []string{"serve", "--listen", "127.0.0.1:0"}, Std{
			In: strings.NewReader(""), Out: said, Err: said, Env: func(name string) string { return r.env[name] },
			Open: func(context.Context, connect.Target) (storage.Storage, error) { return r.store, nil },
		})
	}()
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
	testserver.Await(t, "the dashboard tells its address", func() bool { return address.MatchString(said.String()) })
	answer, err := http.Get(address.FindString(said.String()))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(page), "mail") {
		t.Errorf("got %s, %v: %.300s; want the overview", answer.Status, err, page)
	}
	_ = answer.Body.Close()
	stop()
	if got := <-code; got != Done {
		t.Errorf("it exits with %d: %s", got, said)
	}
}

func TestUsersAreKeptInAFile(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "users.json")
	for _, c := range []struct {
		line, in string
		code     int
	}{
		{"user set ann --role operator", "correct horse\n", Done},
		{"user set bob", "correct horse\n", Done},
		{"user set cy", "short\n", BadInput},
		{"user set dan --role king", "correct horse\n", BadInput},
		{"user set ann --role admin", "\n", Done},
		{"user rm bob", "", Done},
		{"user rm bob", "", NotFound},
	} {
		r.in = c.in
		if got := r.run(c.line + " --users " + file); got.code != c.code {
			t.Errorf("midge %s: got %+v, want %d", c.line, got, c.code)
		}
	}
	if got := r.ok("user ls --users " + file); got != "USER  ROLE\nann   admin\n" {
		t.Errorf("the users are %q", got)
	}
	if got := r.run("user ls"); got.code != BadInput {
		t.Errorf("without a file: got %+v", got)
	}
}

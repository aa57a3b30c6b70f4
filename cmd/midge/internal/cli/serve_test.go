package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

func TestTheDashboardIsOpenToThisMachineAlone(t *testing.T) {
	r := newRig(t)
	golden(t, "serve", r.transcript("serve --listen 0.0.0.0:0", "serve --listen :0", "serve --listen 10.0.0.1:1 --users u.json",
		"serve --listen nonsense", "serve --tls-cert c.pem", "serve --insecure --listen :0", "serve --host jobs.example.org", "serve --trusted-proxy nginx", "serve --trusted-origin jobs.example.org", "serve --base x", "serve --users /none", "serve --redact ''"))
}

// shared is a buffer that one goroutine writes while another one reads.
type shared struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the buffer.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns the text of the buffer.
func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTheDashboardIsServedUntilItIsStopped(t *testing.T) {
	r := newRig(t)
	r.night()
	s := r.serve("")
	s.visitor().wants(http.StatusOK, "mail", "/", nil)
	s.ends()
}

// slow is a storage that changes settings only when the test allows it.
type slow struct {
	storage.Storage

	asked, goOn chan struct{}
}

func (s slow) Configure(ctx context.Context, call storage.Call, queue string, settings storage.Settings) error {
	close(s.asked)
	<-s.goOn
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Storage.Configure(ctx, call, queue, settings)
}

// TestAnActionUnderWayComesToItsEnd stops the command while it pauses a queue, and while a browser has a live
// page open.
func TestAnActionUnderWayComesToItsEnd(t *testing.T) {
	r := newRig(t)
	r.night()
	store := slow{r.store, make(chan struct{}), make(chan struct{})}
	r.store = store
	s := r.serve("")
	v := s.visitor()
	live, err := v.http.Get(s.site + "/events")
	if err != nil || live.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", live, err)
	}
	defer func() { _ = live.Body.Close() }()
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		v.wants(http.StatusSeeOther, "", "/action", url.Values{"do": {"pause"}, "queue": {"mail"}})
	}()
	<-store.asked
	s.stop()
	testserver.Await(t, "no more requests are taken", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.site, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case got := <-s.code:
		t.Errorf("it exits with %d while an action is under way", got)
		s.code <- got
	default:
	}
	_, _ = io.Copy(io.Discard, live.Body) // the live page ends before the action does
	close(store.goOn)
	<-paused
	s.ends()
	if stats, err := r.store.Stats(t.Context(), "mail"); err != nil || !stats[0].Paused {
		t.Errorf("got %+v, %v; want the queue paused", stats, err)
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
		{"user set ann", "another horse\n", Done},
		{"user set ann --role viewer", "", BadInput},
		{"user set eve", "", BadInput},
		{"user set ann --role ''", "another horse\n", BadInput},
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

// TestARefusedUserLeavesNoFile adds the first user without a password, or with bad input.
func TestARefusedUserLeavesNoFile(t *testing.T) {
	r := newRig(t)
	for line, in := range map[string]string{
		"user set ann": "", "user set bob": "\n", "user set cy": "short\n", "user set 'a b'": "correct horse\n",
	} {
		dir := t.TempDir()
		r.in = in
		got := r.run(line + " --users " + filepath.Join(dir, "users.json"))
		left, err := os.ReadDir(dir)
		if got.code != BadInput || err != nil || len(left) > 0 {
			t.Errorf("midge %s: got %+v, %v and %d files, want %d and no file", line, got, err, len(left), BadInput)
		}
	}
}

// TestAnInterruptedPasswordChangesNothing interrupts the input of a password, also after a part of it was
// read.
func TestAnInterruptedPasswordChangesNothing(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(t.TempDir(), "users.json")
	r.in = "correct horse\n"
	r.ok("user set ann --role viewer --users " + file)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"", "another hor"} {
		in, to := io.Pipe()
		ctx, interrupt := context.WithCancel(t.Context())
		code := make(chan int)
		go func() {
			code <- Run(ctx, words("user set ann --role admin --users "+file), r.std(in, io.Discard, io.Discard))
		}()
		if _, err := io.WriteString(to, part); err != nil { // returns when the command has read it
			t.Fatal(err)
		}
		interrupt()
		if got := <-code; got != Interrupted {
			t.Errorf("behind %q: it exits with %d, want %d", part, got, Interrupted)
		}
		_ = to.Close() // ends the pending read
		if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, before) {
			t.Errorf("behind %q: the file is changed, %v", part, err)
		}
	}
}

// TestAFileOfUsersStaysASymbolicLink adds a user by a symbolic link, and checks that the file behind the
// link gets the user.
func TestAFileOfUsersStaysASymbolicLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a link wants a privilege there")
	}
	r := newRig(t)
	dir := t.TempDir()
	file, link := filepath.Join(dir, "users.json"), filepath.Join(dir, "link.json")
	r.in = "correct horse\n"
	r.ok("user set ann --users " + file)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	r.in = "correct horse\n"
	r.ok("user set bob --users " + link)
	r.ok("user rm ann --users " + link)
	if got := r.ok("user ls -o ids --users " + file); got != "bob\n" {
		t.Errorf("the users behind the link are %q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
}

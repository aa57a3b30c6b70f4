package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// aSecret is a secret of a signature.
const aSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// secretFile writes a file that only its owner may read.
func secretFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// callbacks runs callback in the background, and returns its messages and a function that ends it.
func (r *rig) callbacks(line string) (said *shared, end func() int) {
	ctx, stop := context.WithCancel(r.t.Context())
	said = &shared{}
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, words("callback "+line), r.std(strings.NewReader(""), said, said))
	}()
	return said, func() int { stop(); return <-code }
}

// posted returns the next request that came, and fails the test if none comes.
func posted[T any](t *testing.T, got <-chan T, said *shared) T {
	t.Helper()
	select {
	case post := <-got:
		return post
	case <-time.After(time.Minute):
		t.Fatalf("no request came:\n%s", said)
		panic("not reached")
	}
}

// ticking replaces the storage by one whose clock goes on.
func (r *rig) ticking() {
	r.t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = store.Close() })
	r.store, r.session = unclosed{store}, storage.NewSession(store, 0)
}

// await waits until a task has a state.
func (r *rig) await(ref storage.Ref, state storage.State) {
	r.t.Helper()
	testserver.Await(r.t, "the task is "+string(state), func() bool {
		task, err := r.store.Task(r.t.Context(), ref)
		return err == nil && task.State == state
	})
}

func TestTasksArePostedToAnEndpoint(t *testing.T) {
	r := newRig(t)
	r.ticking()
	got := make(chan *http.Request, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, post *http.Request) {
		got <- post.Clone(context.WithoutCancel(post.Context()))
		w.WriteHeader(map[string]int{"/paid": http.StatusOK, "/sent": http.StatusGone}[post.URL.Path])
	}))
	defer s.Close()
	key := secretFile(t, "paid.key", aSecret+"\n")
	said, end := r.callbacks("--kind order.paid --url " + s.URL + "/paid --secret-file " + key + " --queue mail --queue orders --allow 127.0.0.1")
	ref := storage.Ref{Queue: "orders", ID: "a1"}
	r.insert(storage.Insert{Ref: ref, Kind: "order.paid", Keep: storage.Keep{For: 1 << 40}})
	post := posted(t, got, said)
	if post.Header.Get("Midge-Kind") != "order.paid" || !strings.HasPrefix(post.Header.Get("Webhook-Signature"), "v1,") {
		t.Errorf("got %v, want a signed callback", post.Header)
	}
	r.await(ref, storage.Completed)
	if code := end(); code != Done || !strings.Contains(said.String(), "posting order.paid of mail, orders of redis://db.example:6379/0\n") {
		t.Errorf("exit %d:\n%s", code, said)
	}
	if strings.Contains(said.String(), "whsec_") || strings.Contains(said.String(), "ann@example.org") {
		t.Errorf("it shows a secret, or parameters:\n%s", said)
	}
}

func TestAFileNamesSeveralKinds(t *testing.T) {
	r := newRig(t)
	r.ticking()
	r.env["OLD_KEY"] = aSecret
	got := make(chan *http.Request, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, post *http.Request) {
		got <- post.Clone(context.WithoutCancel(post.Context()))
		w.WriteHeader(map[string]int{"/paid": http.StatusOK, "/sent": http.StatusGone}[post.URL.Path])
	}))
	defer s.Close()
	key := secretFile(t, "paid.key", aSecret)
	file := filepath.Join(filepath.Dir(key), "callbacks.json")
	text, err := json.Marshal(map[string]any{
		"queues": []string{"orders"}, "allow": []string{"127.0.0.0/8"}, "concurrency": 5,
		"kinds": map[string]any{
			"order.paid": map[string]any{
				"url": s.URL + "/paid", "secrets": []string{"paid.key", "$OLD_KEY"}, "timeout": "5m", "per_host": 3,
				"headers": []string{"traceparent"},
			},
			"order.sent": map[string]any{"url": s.URL + "/sent", "unsigned": true},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said, end := r.callbacks("--quiet --config " + file)
	paid, sent := storage.Ref{Queue: "orders", ID: "a1"}, storage.Ref{Queue: "orders", ID: "a2"}
	r.insert(storage.Insert{Ref: paid, Kind: "order.paid", Headers: map[string]string{"traceparent": "x"}, Keep: storage.Keep{For: 1 << 40}})
	post := posted(t, got, said)
	if n := len(strings.Fields(post.Header.Get("Webhook-Signature"))); n != 2 || post.Header.Get("Traceparent") != "x" {
		t.Errorf("got %v, want two signatures and a header", post.Header)
	}
	r.insert(storage.Insert{Ref: sent, Kind: "order.sent"})
	if post := posted(t, got, said); post.URL.Path != "/sent" || post.Header.Get("Webhook-Signature") != "" {
		t.Errorf("got %v, want an unsigned request", post.Header)
	}
	r.await(paid, storage.Completed)
	r.await(sent, storage.Dead)
	if code := end(); code != Done || strings.Contains(said.String(), "posting") {
		t.Errorf("exit %d:\n%s", code, said)
	}
}

// TestAWrongCallbackIsRefused passes wrong flags and files. The storage cannot be reached, and is not asked.
func TestAWrongCallbackIsRefused(t *testing.T) {
	r := newRig(t)
	r.real = true
	key := secretFile(t, "paid.key", aSecret)
	open := secretFile(t, "open.key", aSecret)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	r.env["EMPTY"] = ""
	for line, want := range map[string]string{
		"":                                  "give --kind and --url, or --config",
		"--kind a":                          "give --kind and --url, or --config",
		"--kind a --url https://a.example/": "give --secret-file, set MIDGE_CALLBACK_SECRET, or give --unsigned",
		"--kind a --url https://a.example/ --unsigned --secret-file " + key:                                         `invalid flags "--unsigned with --secret-file": want one of them`,
		"--kind a --url https://a.example/ --secret-file /none":                                                     "the secret in /none cannot be read: no such file or directory",
		"--kind a --url https://a.example/ --secret-file " + open:                                                   "the secret in " + open + " cannot be read: permissions 0644: want 0600, for its owner alone",
		"--kind a --url https://a.example/ --secret-file " + secretFile(t, "bad", "whsec_s3cret"):                   `kind a: invalid secret "***": want "whsec_" and the base64 of 24 to 64 bytes`,
		"--kind a --url http://a.example/s3cret --unsigned":                                                         `kind a: invalid URL "http://a.example/***": want https://, or the network`,
		"--kind a --url https://u:s3cret@a.example/ --unsigned":                                                     `invalid --url "with a user": want a URL with a user in the file of --config`,
		"--kind a --url https://10.0.0.1/s3cret --unsigned":                                                         `kind a: invalid URL "with 10.0.0.1, a private address, which is not allowed"`,
		"--kind 'a b' --url https://a.example/ --unsigned":                                                          `invalid kind "a b": want 1 to 128 letters`,
		"--kind a --url https://a.example/ --unsigned --allow x":                                                    `invalid --allow "x": want an address or a network, such as 10.0.0.0/8`,
		"--kind a --url https://a.example/ --unsigned --queue 'a b'":                                                `invalid queue name "a b": want 1 to 128 letters`,
		"--kind a --url https://a.example/ --unsigned --queue midge.history":                                        `invalid queue name "midge.history": want one that does not begin with "midge."`,
		"--kind a --url https://a.example/ --unsigned --concurrency -1":                                             `invalid --concurrency -1: want 1 to 10000`,
		"--kind a --url https://a.example/ --unsigned --per-host 99999":                                             `kind a: invalid number of requests at once for a host 99999: want 1 to 10000`,
		"--kind a --url https://a.example/ --unsigned --request-timeout 5":                                          `invalid --request-timeout "5": want a number with its unit`,
		"--config /none --kind a":                                                                                   `invalid flags "--config with flags of a single kind": want --config, or --kind`,
		"--config " + open:                                                                                          "the file of --config cannot be read: permissions 0644: want 0600, for its owner alone",
		"--config /none":                                                                                            "the file of --config cannot be read: stat /none: no such file or directory",
		"--config " + secretFile(t, "a", `{`):                                                                       "the file of --config is no such JSON: unexpected EOF",
		"--config " + secretFile(t, "b", `{} {}`):                                                                   "the file of --config is no such JSON: more than one value",
		"--config " + secretFile(t, "c", `{"kind":{}}`):                                                             `the file of --config is no such JSON: unknown field "kind"`,
		"--config " + secretFile(t, "d", `{"queues":7}`):                                                            "the file of --config has a number as queues: want another type",
		"--config " + secretFile(t, "e", `{}`):                                                                      `invalid kinds in the file of --config "none": want at least one`,
		"--config " + secretFile(t, "f", `{"kinds":{"a":{"url":"https://a.example/","secrets":["whsec_s3cret"]}}}`): `kind a: invalid secret in the file of --config "***": want the path of its file, or $ and a variable`,
		"--config " + secretFile(t, "g", `{"kinds":{"a":{"url":"https://a.example/","secrets":["$EMPTY"]}}}`):       `kind a: invalid variable of a secret "$EMPTY": want one that is set`,
		"--config " + secretFile(t, "h", `{"kinds":{"a":{"url":"https://a.example/","secrets":["none"]}}}`):         "the secret in ",
		"--config " + secretFile(t, "i", `{"kinds":{"a":{"url":"https://a.example/","timeout":"5"}}}`):              `kind a: the timeout: invalid duration "5": want a number with its unit`,
		// Of two values with one name, the first would be lost, and zero would be the default.
		"--config " + secretFile(t, "j", `{"queues":["a"],"queues":["b"],"kinds":{}}`):                                    `invalid file of --config "with queues twice": want each name once`,
		"--config " + secretFile(t, "k", `{"kinds":{"a":{"url":"https://a.example/"},"a":{"url":"https://b.example/"}}}`): `invalid file of --config "with a twice"`,
		"--config " + secretFile(t, "l", `{"kinds":{"a":{"url":"https://a.example/","URL":"https://b.example/"}}}`):       `invalid file of --config "with URL twice"`,
		"--config " + secretFile(t, "m", `{"kinds":{"a":{"url":"https://a.example/","unsigned":true,"timeout":"0s"}}}`):   `kind a: invalid timeout 0s: want more than 0, or none for the default`,
		"--config " + secretFile(t, "n", `{"kinds":{"a":{"url":"https://a.example/","unsigned":true,"per_host":0}}}`):     `kind a: invalid per_host 0: want more than 0, or none for the default`,
		"--config " + secretFile(t, "o", `{"concurrency":0,"kinds":{"a":{"url":"https://a.example/"}}}`):                  `invalid concurrency 0: want more than 0, or none for the default`,
	} {
		got := r.run("callback " + line)
		if got.code != BadInput || !strings.HasPrefix(got.err, "midge: "+want) || got.out != "" {
			t.Errorf("midge callback %s: got %d, %swant %s", line, got.code, got.err, want)
		}
	}
}

// TestSecretsAreInTheEnvironment takes two secrets from the variable.
func TestSecretsAreInTheEnvironment(t *testing.T) {
	r := newRig(t)
	r.ticking()
	r.env[EnvCallbackSecret] = aSecret + " whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	got := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, post *http.Request) {
		got <- post.Header.Get("Webhook-Signature")
	}))
	defer s.Close()
	said, end := r.callbacks("--kind order.paid --url " + s.URL + " --allow 127.0.0.1")
	r.insert(storage.Insert{Ref: storage.Ref{Queue: "default", ID: "a1"}, Kind: "order.paid"})
	if n := len(strings.Fields(posted(t, got, said))); n != 2 {
		t.Errorf("got %d signatures, want 2", n)
	}
	if code := end(); code != Done || strings.Contains(said.String(), "whsec_") {
		t.Errorf("exit %d:\n%s", code, said)
	}
}

// TestTheLogHasNoTextOfAReceiver has a receiver whose refusal quotes the parameters.
func TestTheLogHasNoTextOfAReceiver(t *testing.T) {
	r := newRig(t)
	r.ticking()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, post *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.Copy(w, post.Body)
	}))
	defer s.Close()
	said, end := r.callbacks("--kind order.paid --unsigned --url " + s.URL + " --allow 127.0.0.1")
	ref := storage.Ref{Queue: "default", ID: "a1"}
	r.insert(storage.Insert{Ref: ref, Kind: "order.paid"})
	r.await(ref, storage.Dead)
	if code := end(); code != Done {
		t.Errorf("exit %d", code)
	}
	if text := said.String(); strings.Contains(text, "ann@example.org") || !strings.Contains(text, "msg=discarded") {
		t.Errorf("want a line about the attempt without its error, got\n%s", text)
	}
	task, err := r.store.Task(t.Context(), ref)
	if err != nil || !strings.Contains(task.LastError(), `400 Bad Request: {"to":"ann@example.org"}`) {
		t.Errorf("the task has the error %q, %v", task.LastError(), err)
	}
}

package callback

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// paid is a job that programs enqueue, and that a callback runs.
type paid struct {
	Order int64
	Note  string
}

// Options keep a task after its end, so that tests can read it.
func (paid) Options() midge.Options { return midge.Options{Keep: midge.Keep{For: time.Hour}} }

// The secrets of the tests.
const (
	secretA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretB = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// loopback is the network of the receivers of the tests.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// rig is a receiver, a storage, and a runner whose tasks are posted to the receiver.
type rig struct {
	*testing.T

	site   *httptest.Server
	store  storage.Storage
	client *midge.Client
	stop   context.CancelFunc
	done   chan error
	ends   chan midge.Ended
	log    *lines
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the log.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the log.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newRig starts a receiver and a runner. change may change the configurations; nil for none.
func newRig(t *testing.T, receive http.HandlerFunc, change func(*Config, *midge.RunnerConfig)) *rig {
	t.Helper()
	r := &rig{T: t, site: httptest.NewServer(readFirst(receive)), ends: make(chan midge.Ended, 100), log: &lines{}, done: make(chan error, 1)}
	t.Cleanup(r.site.Close)
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	cfg := Config{
		URL: r.site.URL + "/hooks/s3cret?token=s3cret", Secrets: []string{secretA}, Allow: loopback,
		Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	runs := midge.RunnerConfig{
		Slog: slog.New(slog.NewTextHandler(r.log, nil)), Backoff: midge.Constant(time.Millisecond), Grace: midge.None,
		OnEnd: []func(context.Context, midge.Ended){func(_ context.Context, end midge.Ended) { r.ends <- end }},
	}
	if change != nil {
		change(&cfg, &runs)
	}
	runner, err := midge.NewRunner(store, runs)
	if err != nil {
		t.Fatal(err)
	}
	if err := Handle(runner, "paid", cfg); err != nil {
		t.Fatal(err)
	}
	if r.client, err = midge.NewClient(store, midge.ClientConfig{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		r.drain()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.log.String(), "s3cret") {
			t.Errorf("the log shows the path of the URL:\n%s", r.log)
		}
	})
	return r
}

// readFirst reads the body of a request before receive gets it. A server of the standard library notices only then
// that a client has closed its connection.
func readFirst(receive http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, post *http.Request) {
		body, err := io.ReadAll(post.Body)
		if err != nil {
			return
		}
		post.Body = io.NopCloser(bytes.NewReader(body))
		receive(w, post)
	})
}

// drain stops the runner.
func (r *rig) drain() {
	r.Helper()
	r.stop()
	err := <-r.done
	r.done <- nil
	if err != nil {
		r.Errorf("the runner returned %v", err)
	}
}

// enqueue enqueues a task.
func (r *rig) enqueue(opts ...midge.Option) midge.Ref {
	r.Helper()
	task, err := r.client.Enqueue(r.Context(), paid{Order: 1<<62 + 1, Note: "ä"}, opts...)
	if err != nil {
		r.Fatal(err)
	}
	return task.Ref
}

// next returns the end of the next attempt.
func (r *rig) next() midge.Ended {
	r.Helper()
	select {
	case end := <-r.ends:
		return end
	case <-time.After(30 * time.Second):
		r.Fatalf("no attempt has ended:\n%s", r.log)
	}
	return midge.Ended{}
}

// wants checks the end of an attempt. text is the text that its error has to contain, "" for no error.
func (r *rig) wants(end midge.Ended, outcome midge.Outcome, text string) {
	r.Helper()
	got := ""
	if end.Err != nil {
		got = end.Err.Error()
	}
	if end.Outcome != outcome || !strings.Contains(got, text) || (got == "") != (text == "") {
		r.Errorf("got %s, %q; want %s, %q", end.Outcome, got, outcome, text)
	}
	if strings.Contains(got, "s3cret") {
		r.Errorf("the error shows the path of the URL: %s", got)
	}
}

// answers returns a receiver that answers with a status, headers ("name: value"), and a body.
func answers(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// received is a request as a receiver got it.
type received struct {
	method, path string
	header       http.Header
	body         string
}

// recorder is a receiver that keeps its requests, and then lets next answer.
type recorder struct {
	mu   sync.Mutex
	all  []received
	next http.HandlerFunc
}

// ServeHTTP keeps a request.
func (r *recorder) ServeHTTP(w http.ResponseWriter, post *http.Request) {
	body, err := io.ReadAll(post.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.all = append(r.all, received{post.Method, post.URL.Path, post.Header.Clone(), string(body)})
	r.mu.Unlock()
	r.next(w, post)
}

// requests returns the requests.
func (r *recorder) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// errUnsigned is the error of a request that no secret has signed.
var errUnsigned = errors.New("no signature is valid")

// verify checks a request as a receiver does, by the text of the specification of Standard Webhooks 1.0.0 alone. It
// shares no code with the package.
func verify(secret string, r received, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(secret[len("whsec_"):])
	if err != nil {
		return err
	}
	id, stamp := r.header.Get("Webhook-Id"), r.header.Get("Webhook-Timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return err
	}
	if off := now.Sub(time.Unix(seconds, 0)); off.Abs() > 5*time.Minute {
		return errors.New("the timestamp is too far from now")
	}
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, strings.Join([]string{id, stamp, r.body}, "."))
	want := mac.Sum(nil)
	for one := range strings.SplitSeq(r.header.Get("Webhook-Signature"), " ") {
		version, text, _ := strings.Cut(one, ",")
		if got, err := base64.StdEncoding.DecodeString(text); version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errUnsigned
}

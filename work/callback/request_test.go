package callback

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// TestTheSignatureIsThatOfTheReference compares with the test vector of the libraries of Standard Webhooks.
func TestTheSignatureIsThatOfTheReference(t *testing.T) {
	keys, err := keysOf([]string{secretA})
	if err != nil {
		t.Fatal(err)
	}
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	got := signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestARequestIsSignedJSON(t *testing.T) {
	to := &recorder{next: answers(http.StatusNoContent, "")}
	r := newRig(t, to.ServeHTTP, func(c *Config, _ *midge.RunnerConfig) {
		c.Secrets, c.Headers = []string{secretA, secretB}, []string{"traceparent", "absent"}
	})
	ref := r.enqueue(midge.Header("traceparent", "00-ab-cd-01"), midge.Header("private", "p"), midge.ID("a.b"))
	r.wants(r.next(), midge.OutcomeSucceeded, "")
	all := to.requests()
	if len(all) != 1 {
		t.Fatalf("got %d requests, want 1", len(all))
	}
	got := all[0]
	if want := `{"Order":4611686018427387905,"Note":"ä"}`; got.method != http.MethodPost || got.path != "/hooks/s3cret" ||
		got.body != want {
		t.Errorf("got %s %s with %s, want %s", got.method, got.path, got.body, want)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "midge", "Midge-Kind": "paid", "Midge-Attempt": "1",
		"Traceparent": "00-ab-cd-01", "Private": "", "Absent": "", "Cookie": "", "Accept-Encoding": "", "Authorization": "",
	} {
		if got := got.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	id := got.header.Get("Webhook-Id")
	if strings.Contains(id, ".") || !strings.HasPrefix(id, strings.ReplaceAll(ref.String(), ".", "~")+"@") {
		t.Errorf("the id is %q, want the task without a full stop", id)
	}
	for _, secret := range []string{secretA, secretB} {
		if err := verify(secret, got, time.Now()); err != nil {
			t.Errorf("the signature by %s: %v", secret, err)
		}
	}
	if n := len(strings.Fields(got.header.Get("Webhook-Signature"))); n != 2 {
		t.Errorf("got %d signatures, want 2", n)
	}
	other := "whsec_" + strings.Repeat("QUJD", 8)
	if verify(other, got, time.Now()) == nil {
		t.Error("another secret has signed the request")
	}
	got.body += " "
	if verify(secretA, got, time.Now()) == nil {
		t.Error("the signature holds for another body")
	}
}

func TestEachAttemptHasTheSameID(t *testing.T) {
	to := &recorder{}
	to.next = func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(map[bool]int{true: http.StatusInternalServerError, false: http.StatusOK}[len(to.requests()) < 3])
	}
	r := newRig(t, to.ServeHTTP, nil)
	r.enqueue()
	r.wants(r.next(), midge.OutcomeFailed, "answered 500 Internal Server Error")
	r.wants(r.next(), midge.OutcomeFailed, "answered 500")
	r.wants(r.next(), midge.OutcomeSucceeded, "")
	r.enqueue()
	r.next()
	all := to.requests()
	if len(all) != 4 {
		t.Fatalf("got %d requests, want 4", len(all))
	}
	ids := make([]string, len(all))
	for i, one := range all {
		ids[i] = one.header.Get("Webhook-Id")
		if err := verify(secretA, one, time.Now()); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		if want := string(rune('1' + i%3)); one.header.Get("Midge-Attempt") != want {
			t.Errorf("request %d is of attempt %s, want %s", i, one.header.Get("Midge-Attempt"), want)
		}
	}
	if ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] || ids[2] == ids[3] {
		t.Errorf("the ids are %q, want the same for one task, and another one for another task", ids)
	}
}

func TestAnUnsignedRequestHasNoSignature(t *testing.T) {
	to := &recorder{next: answers(http.StatusOK, "")}
	r := newRig(t, to.ServeHTTP, func(c *Config, _ *midge.RunnerConfig) { c.Secrets, c.Unsigned = nil, true })
	r.enqueue()
	r.wants(r.next(), midge.OutcomeSucceeded, "")
	if got := to.requests()[0].header; got.Get("Webhook-Id") == "" || got.Values("Webhook-Signature") != nil {
		t.Errorf("got %v, want an id and no signature", got)
	}
}

func TestAUserOfTheURLIsSent(t *testing.T) {
	to := &recorder{next: answers(http.StatusUnauthorized, "")}
	r := newRig(t, to.ServeHTTP, func(c *Config, _ *midge.RunnerConfig) {
		c.URL = strings.Replace(c.URL, "http://", "http://ann:s3cret@", 1)
	})
	r.enqueue()
	r.wants(r.next(), midge.OutcomeDiscarded, "answered 401 Unauthorized")
	if got := to.requests()[0].header.Get("Authorization"); got != "Basic YW5uOnMzY3JldA==" {
		t.Errorf("got %q, want the user", got)
	}
}

func TestAHeaderThatCannotBeSentIsFinal(t *testing.T) {
	to := &recorder{next: answers(http.StatusOK, "")}
	r := newRig(t, to.ServeHTTP, func(c *Config, _ *midge.RunnerConfig) { c.Headers = []string{"note"} })
	r.enqueue(midge.Header("note", "a\r\nwebhook-id: forged"))
	r.wants(r.next(), midge.OutcomeDiscarded, "header note of the task")
	if len(to.requests()) != 0 {
		t.Error("it was posted")
	}
}

func TestAHostGetsAsManyRequestsAsItMay(t *testing.T) {
	release, under := make(chan struct{}), make(chan struct{}, 10)
	r := newRig(t, func(http.ResponseWriter, *http.Request) {
		under <- struct{}{}
		<-release
	}, func(c *Config, runs *midge.RunnerConfig) { c.PerHost, runs.Concurrency = 2, 5 })
	for range 5 {
		r.enqueue()
	}
	<-under
	<-under
	select {
	case <-under:
		t.Error("a third request is under way")
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	for range 5 {
		r.wants(r.next(), midge.OutcomeSucceeded, "")
	}
}

func TestKindsOfOneHostShareItsBound(t *testing.T) {
	r := newRig(t, answers(http.StatusOK, ""), nil)
	runner, err := midge.NewRunner(r.store, midge.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*endpoint
	for kind, c := range map[string]Config{
		"a": {URL: "https://A.example/x", PerHost: 7}, "b": {URL: "https://a.example:443/y"}, "c": {URL: "https://a.example:444/"},
	} {
		c.Unsigned = true
		e, err := newEndpoint(c)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		all = append(all, e)
	}
	hosts := []string{all[0].host, all[1].host, all[2].host}
	slices.Sort(hosts)
	if want := []string{"a.example:443", "a.example:443", "a.example:444"}; !slices.Equal(hosts, want) {
		t.Errorf("got hosts %v, want %v", hosts, want)
	}
	err = HandleAll(runner, map[string]Config{
		"a": {URL: "https://a.example/x", PerHost: 7, Unsigned: true}, "b": {URL: "https://a.example/y"},
	})
	if err == nil || !strings.Contains(err.Error(), "kind b: invalid secrets") {
		t.Errorf("got %v, want an error about kind b", err)
	}
	if err := Handle(runner, "a", Config{URL: "https://a.example/", Unsigned: true}); err != nil {
		t.Errorf("a failed HandleAll has registered a kind: %v", err)
	}
}

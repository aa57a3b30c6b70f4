package callback

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// TestEachStatusHasItsVerdict answers one attempt with each status.
func TestEachStatusHasItsVerdict(t *testing.T) {
	status := 0
	headers := []string{}
	r := newRig(t, func(w http.ResponseWriter, post *http.Request) {
		answers(status, "because\x00\x1b[31m\n", headers...)(w, post)
	}, func(_ *Config, runs *midge.RunnerConfig) { runs.Backoff = midge.Constant(time.Hour) })
	for _, c := range []struct {
		status  int
		headers []string
		outcome midge.Outcome
		retryIn time.Duration
		text    string
	}{
		{200, nil, midge.OutcomeSucceeded, 0, ""},
		{201, nil, midge.OutcomeSucceeded, 0, ""},
		{202, []string{"Retry-After: 7"}, midge.OutcomeSucceeded, 0, ""},
		{204, nil, midge.OutcomeSucceeded, 0, ""},
		{299, nil, midge.OutcomeSucceeded, 0, ""},
		{300, nil, midge.OutcomeFailed, time.Hour, "answered 300 Multiple Choices, a redirect elsewhere, which is not followed"},
		{
			301,
			[]string{"Location: https://other.example/s3cret"},
			midge.OutcomeFailed, time.Hour,
			"answered 301 Moved Permanently, a redirect to other.example, which is not followed: because\\x00\\x1b[31m",
		},
		{302, []string{"Location: /s3cret"}, midge.OutcomeFailed, time.Hour, "a redirect elsewhere"},
		{304, nil, midge.OutcomeFailed, time.Hour, "answered 304 Not Modified"},
		{307, []string{"Location: http://169.254.169.254/s3cret"}, midge.OutcomeFailed, time.Hour, "a redirect to 169.254.169.254,"},
		{308, []string{"Location: %zz://s3cret"}, midge.OutcomeFailed, time.Hour, "a redirect elsewhere"},
		{400, nil, midge.OutcomeDiscarded, 0, "answered 400 Bad Request: because"},
		{401, nil, midge.OutcomeDiscarded, 0, "answered 401"},
		{403, []string{"Retry-After: 7"}, midge.OutcomeDiscarded, 0, "answered 403"},
		{404, nil, midge.OutcomeDiscarded, 0, "answered 404"},
		{408, nil, midge.OutcomeFailed, time.Hour, "answered 408"},
		{408, []string{"Retry-After: 7"}, midge.OutcomeFailed, time.Hour, "answered 408"},
		{410, nil, midge.OutcomeDiscarded, 0, "answered 410 Gone"},
		{422, nil, midge.OutcomeDiscarded, 0, "answered 422"},
		{425, nil, midge.OutcomeFailed, time.Hour, "answered 425 Too Early"},
		{429, nil, midge.OutcomeFailed, time.Hour, "answered 429 Too Many Requests: because"},
		{429, []string{"Retry-After: soon"}, midge.OutcomeFailed, time.Hour, "answered 429"},
		{451, nil, midge.OutcomeDiscarded, 0, "answered 451"},
		{499, nil, midge.OutcomeDiscarded, 0, "answered 499"},
		{500, []string{"Retry-After: 7"}, midge.OutcomeFailed, time.Hour, "answered 500"},
		{502, nil, midge.OutcomeFailed, time.Hour, "answered 502"},
		{503, nil, midge.OutcomeFailed, time.Hour, "answered 503 Service Unavailable: because"},
		{503, []string{"Retry-After: 7"}, midge.OutcomeFailed, 7 * time.Second, "answered 503"},
		{503, []string{"Retry-After: 0"}, midge.OutcomeFailed, time.Second, "answered 503"},
		{503, []string{"Retry-After: 99999999999999999999"}, midge.OutcomeFailed, 24 * time.Hour, "answered 503"},
		{503, []string{"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"}, midge.OutcomeFailed, time.Second, "answered 503"},
		{503, []string{"Retry-After: Fri, 31 Dec 2199 23:59:59 GMT"}, midge.OutcomeFailed, 24 * time.Hour, "answered 503"},
		{503, []string{"Retry-After: -7"}, midge.OutcomeFailed, time.Hour, "answered 503"},
		{504, nil, midge.OutcomeFailed, time.Hour, "answered 504"},
		{599, nil, midge.OutcomeFailed, time.Hour, "answered 599: because"},
		{999, nil, midge.OutcomeFailed, time.Hour, "answered 999"},
		// The last one, because its partition rests.
		{429, []string{"Retry-After: 7"}, midge.OutcomeThrottled, 7 * time.Second, "answered 429 Too Many Requests: because"},
	} {
		status, headers = c.status, c.headers
		ref := r.enqueue()
		end := r.next()
		r.wants(end, c.outcome, c.text)
		if end.RetryIn != c.retryIn {
			t.Errorf("status %d with %v: the task waits %v, want %v", c.status, c.headers, end.RetryIn, c.retryIn)
		}
		task, err := r.store.Task(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if !task.State.Ended() { // it must not come back among the next ones
			if _, err := r.client.Cancel(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
		}
		charged := c.outcome == midge.OutcomeFailed
		if (task.Retries == 1) != charged {
			t.Errorf("status %d: %d retries, want charged %t", c.status, task.Retries, charged)
		}
	}
}

func TestRetryAfterIsANumberOrADate(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": -1, "x": -1, "1.5": -1, "+5": -1, "-1": -1, "0x10": -1, "5s": -1, "5, 6": -1, "2026-05-17T12:01:00Z": -1,
		"0": time.Second, "1": time.Second, "7": 7 * time.Second, " 120 ": 2 * time.Minute, "86400": 24 * time.Hour,
		"86401": 24 * time.Hour, "18446744073709551615": 24 * time.Hour, "18446744073709551616": 24 * time.Hour,
		strings.Repeat("9", 1000):        24 * time.Hour,
		"Sun, 17 May 2026 12:01:00 GMT":  time.Minute,
		"Sunday, 17-May-26 12:01:00 GMT": time.Minute,
		"Sun May 17 12:01:00 2026":       time.Minute,
		"Sun, 17 May 2026 11:00:00 GMT":  time.Second,
		"Tue, 19 May 2026 12:00:00 GMT":  24 * time.Hour,
		"Fri, 31 Dec 9999 23:59:59 GMT":  24 * time.Hour,
		"Mon, 01 Jan 0001 00:00:00 GMT":  time.Second,
	} {
		got, asked := retryAfter(text, now)
		if asked != (want >= 0) || asked && got != want {
			t.Errorf("%q: got %v, %t; want %v", text, got, asked, want)
		}
	}
}

func TestTheErrorHasABoundedPartOfTheBody(t *testing.T) {
	r := newRig(t, answers(http.StatusBadRequest, strings.Repeat("ä", 10_000)), nil)
	r.enqueue()
	end := r.next()
	r.wants(end, midge.OutcomeDiscarded, "400 Bad Request: ää")
	if n := len(end.Err.Error()); n > maxErrorBody+100 {
		t.Errorf("the error has %d bytes, want at most %d of the body", n, maxErrorBody)
	}
}

// TestTheErrorMarksAPartOfTheBody checks that an error which has only a part of the body ends with "…", also if the white
// space before that part is left out.
func TestTheErrorMarksAPartOfTheBody(t *testing.T) {
	r := newRig(t, answers(http.StatusBadRequest, "\n"+strings.Repeat("z", maxErrorBody+100)), nil)
	r.enqueue()
	if end := r.next(); !strings.HasSuffix(end.Err.Error(), "z…") {
		t.Errorf("the error does not end with an ellipsis: %.50q…", end.Err.Error())
	}
}

func TestABodyIsTheResult(t *testing.T) {
	for _, encoding := range []midge.Encoding{midge.MessagePack, midge.JSON} {
		body := ""
		r := newRig(t, func(w http.ResponseWriter, post *http.Request) { answers(http.StatusOK, body)(w, post) }, nil)
		for _, c := range []struct {
			body string
			into any
			want string
		}{
			{`{"Order":4611686018427387905,"Paid":true,"Sum":1.5}`, new(struct {
				Order int64
				Paid  bool
				Sum   float64
			}), "{4611686018427387905 true 1.5}"},
			{" [1, 2,\n3] ", new([]int), "[1 2 3]"},
			{`18446744073709551615`, new(uint64), "18446744073709551615"},
			{`"a text"`, new(string), "a text"},
			{"no JSON\n", new(string), "no JSON"},
			{"<p>ä\xff</p>", new(string), "<p>ä\ufffd</p>"},
			{"\"\xff\"", new(string), "\ufffd"},
			{"{} {}", new(string), "{} {}"},
			{`{"a":[{"b":1.5}]}`, new(map[string]any), "map[a:[map[b:1.5]]]"},
		} {
			body = c.body
			ref := r.insert(encoding)
			r.wants(r.next(), midge.OutcomeSucceeded, "")
			if err := r.client.Await(t.Context(), ref, c.into); err != nil {
				t.Errorf("%s, %q: %v", encoding, c.body, err)
			}
			if got := pointed(c.into); got != c.want {
				t.Errorf("%s, %q: got %s, want %s", encoding, c.body, got, c.want)
			}
		}
		for _, body = range []string{"", " \n"} {
			ref := r.insert(encoding)
			r.next()
			if err := r.client.Await(t.Context(), ref, new(string)); !errors.Is(err, midge.ErrNoResult) {
				t.Errorf("%s, %q: got %v, want no result", encoding, body, err)
			}
		}
		if strings.Contains(r.log.String(), "left out") {
			t.Errorf("a body was left out:\n%s", r.log)
		}
	}
}

// pointed prints the value behind a pointer.
func pointed(v any) string { return fmt.Sprint(reflect.ValueOf(v).Elem()) }

// insert enqueues a task with an encoding.
func (r *rig) insert(encoding midge.Encoding) midge.Ref {
	r.Helper()
	in := storage.Insert{
		Ref: midge.Ref{Queue: midge.DefaultQueue, ID: fmt.Sprintf("t%d", time.Now().UnixNano())}, Kind: "paid",
		Encoding: string(encoding), Payload: []byte(`{"Order":1}`), CrashLimit: 3, Keep: storage.Keep{For: time.Hour},
	}
	if encoding == midge.MessagePack {
		in.Payload = []byte("\x81\xa5Order\x01")
	}
	if _, err := r.store.Apply(r.Context(), storage.Call{}, storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		r.Fatal(err)
	}
	return in.Ref
}

// TestAResultThatIsTooLargeIsLeftOut completes the tasks all the same, and counts in few lines.
func TestAResultThatIsTooLargeIsLeftOut(t *testing.T) {
	body := strings.Repeat("x", 101)
	r := newRig(t, func(w http.ResponseWriter, post *http.Request) { answers(http.StatusOK, body)(w, post) },
		func(c *Config, _ *midge.RunnerConfig) { c.MaxResult = 100 })
	for range 5 {
		ref := r.enqueue()
		r.wants(r.next(), midge.OutcomeSucceeded, "")
		if err := r.client.Await(t.Context(), ref, new(string)); !errors.Is(err, midge.ErrNoResult) {
			t.Errorf("got %v, want no result", err)
		}
	}
	body = body[:100]
	ref := r.enqueue()
	r.next()
	got := ""
	if err := r.client.Await(t.Context(), ref, &got); err != nil || got != body {
		t.Errorf("got %q, %v; want the body of 100 bytes", got, err)
	}
	for n, want := range map[string]bool{"left_out=1 ": true, "left_out=2 ": true, "left_out=3 ": false, "left_out=4 ": true, "left_out=5 ": false} {
		if strings.Contains(r.log.String(), n) != want {
			t.Errorf("the log has %s: want %t\n%s", n, want, r.log)
		}
	}
	if strings.Contains(r.log.String(), "xxx") {
		t.Error("the log shows the body")
	}
}

// TestAnEndlessBodyIsNotRead answers without an end: a success has no result, and an error has its beginning.
func TestAnEndlessBodyIsNotRead(t *testing.T) {
	status := http.StatusOK
	r := newRig(t, func(w http.ResponseWriter, post *http.Request) {
		w.WriteHeader(status)
		for post.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4<<10)); err != nil {
				return
			}
		}
	}, nil)
	for _, status = range []int{http.StatusOK, http.StatusInternalServerError} {
		r.enqueue(midge.Retries(midge.None))
		end := r.next()
		if want := status == http.StatusOK; (end.Outcome == midge.OutcomeSucceeded) != want || end.Took > 20*time.Second {
			t.Errorf("status %d: got %s after %v", status, end.Outcome, end.Took)
		}
	}
}

func TestNoResultsAreReadIfNoneAreWanted(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, post *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-post.Context().Done() // the body never comes
	}, func(c *Config, _ *midge.RunnerConfig) { c.MaxResult = midge.None })
	r.enqueue()
	r.wants(r.next(), midge.OutcomeSucceeded, "")
}

// TestASlowReceiverIsLeft answers too late: with the headers, or within the body.
func TestASlowReceiverIsLeft(t *testing.T) {
	for name, before := range map[string]func(w http.ResponseWriter){
		"headers": func(http.ResponseWriter) {},
		"body": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("{"))
			_ = http.NewResponseController(w).Flush()
		},
	} {
		r := newRig(t, func(w http.ResponseWriter, post *http.Request) {
			before(w)
			<-post.Context().Done()
		}, func(c *Config, _ *midge.RunnerConfig) { c.Timeout = 50 * time.Millisecond })
		r.enqueue(midge.Retries(midge.None))
		end := r.next()
		r.wants(end, midge.OutcomeFailed, "no whole answer after 50ms")
		if end.Took > 20*time.Second {
			t.Errorf("%s: it took %v", name, end.Took)
		}
	}
}

// TestABrokenAnswerFails resets the connection before the answer, within the headers and within the body.
func TestABrokenAnswerFails(t *testing.T) {
	for name, text := range map[string]string{
		"before": "", "headers": "HTTP/1.1 200 OK\r\nContent-", "body": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf", "garbage": "SSH-2.0-OpenSSH_9.9\r\n\r\n",
		"long status":         "HTTP/1.1 200" + strings.Repeat("x", 10_000) + "\r\n\r\n",
		"headers without end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"switch":              "HTTP/1.1 101 Switching Protocols\r\nUpgrade: s3cret\r\nConnection: Upgrade\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Write([]byte(text))
				if tcp, ok := conn.(*net.TCPConn); ok {
					_ = tcp.SetLinger(0) // a reset
				}
				_ = conn.Close()
			}, nil)
			r.enqueue(midge.Retries(midge.None))
			end := r.next()
			if end.Outcome != midge.OutcomeFailed || end.Err == nil || len(end.Err.Error()) > maxErrorBody+100 {
				t.Errorf("got %s, %v; want a short failure", end.Outcome, end.Err)
			}
		})
	}
}

func TestAReceiverThatIsAwayFails(t *testing.T) {
	r := newRig(t, answers(http.StatusOK, ""), nil)
	r.site.Close()
	r.enqueue(midge.Retries(midge.None))
	r.wants(r.next(), midge.OutcomeFailed, "connection refused")
}

// TestACancelledTaskClosesItsRequest cancels a task whose receiver does not answer.
func TestACancelledTaskClosesItsRequest(t *testing.T) {
	begun, left := make(chan struct{}, 1), make(chan struct{}, 1)
	r := newRig(t, func(_ http.ResponseWriter, post *http.Request) {
		begun <- struct{}{}
		<-post.Context().Done()
		left <- struct{}{}
	}, nil)
	ref := r.enqueue()
	<-begun
	if _, err := r.client.Cancel(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	end := r.next()
	<-left
	if end.Outcome != midge.OutcomeCancelled {
		t.Errorf("got %s, want cancelled", end.Outcome)
	}
}

// TestADrainedTaskIsReleasedUncharged drains while one task is posted and another waits for its turn.
func TestADrainedTaskIsReleasedUncharged(t *testing.T) {
	begun := make(chan struct{}, 2)
	r := newRig(t, func(_ http.ResponseWriter, post *http.Request) {
		begun <- struct{}{}
		<-post.Context().Done()
	}, func(c *Config, runs *midge.RunnerConfig) { c.PerHost, runs.Concurrency = 1, 2 })
	refs := []midge.Ref{r.enqueue(), r.enqueue()}
	<-begun
	r.drain()
	for _, ref := range refs {
		task, err := r.store.Task(context.Background(), ref)
		if err != nil || task.State != midge.Waiting || task.Retries != 0 || task.Crashes != 0 {
			t.Errorf("got %+v, %v; want a waiting task that was not charged", task, err)
		}
	}
}

// TestTheTimeoutOfATaskEndsItsRequest sets less time for the task than for the request.
func TestTheTimeoutOfATaskEndsItsRequest(t *testing.T) {
	r := newRig(t, func(_ http.ResponseWriter, post *http.Request) { <-post.Context().Done() }, nil)
	r.enqueue(midge.Timeout(50*time.Millisecond), midge.Retries(midge.None))
	r.wants(r.next(), midge.OutcomeTimedOut, "after 50ms")
}

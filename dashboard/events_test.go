package dashboard

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// TestAUserHasSoManyStreams checks that further streams of a user are refused, that other users have theirs,
// and that a stream that ends makes room.
func TestAUserHasSoManyStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		token := rand.Text()
		d, err := Handler(sc.Store, Config{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		cookies := fetch(t.Context(), d, "/login?token="+token).Result().Cookies()
		stream := func(ctx context.Context) *httptest.ResponseRecorder {
			r := requestFor(ctx, "/events")
			for _, c := range cookies {
				r.AddCookie(c)
			}
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			return w
		}
		ctx, stop := context.WithCancel(t.Context())
		first, leave := context.WithCancel(ctx)
		var open sync.WaitGroup
		open.Go(func() { stream(first) })
		for range mostStreams - 1 {
			open.Go(func() { stream(ctx) })
		}
		synctest.Wait()
		if w := stream(ctx); w.Code != http.StatusTooManyRequests {
			t.Errorf("stream %d of a user: %d, want 429", mostStreams+1, w.Code)
		}
		leave()
		synctest.Wait()
		open.Go(func() { stream(ctx) })
		synctest.Wait()
		if !d.server.streams.begin("another user") {
			t.Error("another user has no stream")
		}
		d.server.streams.end("another user")
		if got := d.server.streams.of["local"]; got != mostStreams {
			t.Errorf("%d streams after one has made room, want %d", got, mostStreams)
		}
		stop()
		open.Wait()
		if left := len(d.server.streams.of); left != 0 {
			t.Errorf("%d users are counted after the last stream", left)
		}
	})
}

// requestFor returns a request for a path as a browser on this machine makes it.
func requestFor(ctx context.Context, path string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4000"
	return r
}

// fetch returns the answer of a dashboard to such a request.
func fetch(ctx context.Context, d *Dashboard, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, requestFor(ctx, path))
	return w
}

// TestStreamsEndWithRun checks that streams end when Run does, because a server that shuts down waits for
// them.
func TestStreamsEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		var logged strings.Builder
		d, err := Handler(sc.Store, Config{Who: asAdmin().Who, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := func() int { return fetch(t.Context(), d, "/events").Code }
		var all sync.WaitGroup
		all.Go(func() { d.Run(ctx) })
		all.Go(func() { stream() })
		time.Sleep(3 * time.Second)
		cancel()
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > sampler.LookTimeout {
			t.Errorf("a stream ends %v after Run", took)
		}
		if code := stream(); code != http.StatusServiceUnavailable {
			t.Errorf("a stream after Run: %d, want 503", code)
		}
		if logged.Len() > 0 {
			t.Errorf("the log has %q, want nothing: no storage failed", &logged)
		}
	})
}

// many is a storage with so many queues, whose names have a given length.
type many struct {
	storage.Storage

	queues, length int
}

func (s *many) Queues(_ context.Context, q storage.QueuesQuery) (names storage.QueuesPage, err error) {
	for i := range s.queues {
		names.Names = append(names.Names, fmt.Sprintf("queue-%0*d", s.length-len("queue-"), i))
	}
	if q.After != "" {
		return storage.QueuesPage{}, nil
	}
	return names, nil
}

func (s *many) Stats(_ context.Context, queues ...string) ([]storage.Stats, error) {
	all := make([]storage.Stats, len(queues))
	for i, name := range queues {
		all[i] = storage.Stats{
			Queue: name, Waiting: 12_345, Pending: 99, Scheduled: 1_234_567, Retry: 7, Completed: 98_765_432, Dead: 1,
			Oldest: time.Second - 1, Totals: storage.Totals{Enqueued: 123_456_789, Completed: 98_765_432},
		}
	}
	return all, nil
}

// begun returns the first message of a stream.
func begun(t *testing.T, d *Dashboard) (size int, told map[string]string) {
	t.Helper()
	first, _, _ := strings.Cut(answer(t, d, "/events"), "\n\n")
	first, _ = strings.CutPrefix(first, "event: all\ndata: ")
	if err := json.Unmarshal([]byte(first), &told); err != nil || told["all.queues"] == "" {
		t.Fatalf("the stream begins with %.100q: %v", first, err)
	}
	return len(first), told
}

// answer returns the answer of the dashboard within three seconds.
func answer(t *testing.T, d *Dashboard, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // virtual
	defer cancel()
	return fetch(ctx, d, path).Body.String()
}

// watchesTold fails the test if a page watches nothing, or a cell that the stream does not send.
func watchesTold(t *testing.T, told map[string]string, path, page string) {
	t.Helper()
	marks := watchedBy(t, page)
	if len(marks) == 0 {
		t.Errorf("%s watches nothing", path)
	}
	for key, mark := range marks {
		if _, ok := told[key]; !ok || mark == "" {
			t.Errorf("%s watches %s, rendered at %q, which the stream does not tell", path, key, mark)
		}
	}
}

// TestAStreamIsBounded checks that a stream is bounded however many queues there are, and that pages watch
// only cells that it sends.
func TestAStreamIsBounded(t *testing.T) {
	for _, c := range []struct {
		queues, length int
		each           bool // the stream sends the cells of each queue
	}{{1000, 12, true}, {1900, 12, true}, {10_000, 12, false}, {10_000, 128, false}, {600, 128, false}, {400, 128, true}} {
		synctest.Test(t, func(t *testing.T) {
			sc, err := scene.Open(t.Context(), "empty", 0)
			if err != nil {
				t.Fatal(err)
			}
			d, err := Handler(&many{sc.Store, c.queues, c.length}, asAdmin())
			if err != nil {
				t.Fatal(err)
			}
			size, told := begun(t, d)
			if most := mostTold + 1<<10; size > most {
				t.Errorf("of %d queues the stream begins with %d bytes, want at most %d", c.queues, size, most)
			}
			name := d.server.sampler.Last().Queues[7].Queue
			if _, each := told[queueKey(name, "waiting")]; each != c.each {
				t.Errorf("of %d queues with names of %d bytes the cells of each are told: %t", c.queues, c.length, each)
			}
			for _, path := range []string{"/", "/queues", "/queues/" + name, "/tasks?queue=" + name, "/runners", "/dead"} {
				watchesTold(t, told, path, answer(t, d, path))
			}
		})
	}
}

// watchedBy returns the cells that a page watches.
func watchedBy(t *testing.T, page string) map[string]string {
	t.Helper()
	_, rest, _ := strings.Cut(page, `data-watch="`)
	text, _, _ := strings.Cut(rest, `"`)
	marks := map[string]string{}
	if err := json.Unmarshal([]byte(html.UnescapeString(text)), &marks); err != nil {
		t.Fatalf("the page watches %q: %v", text, err)
	}
	return marks
}

// telling is the answer of a stream, whose messages a test receives.
type telling struct {
	*httptest.ResponseRecorder

	messages chan string
}

func (w telling) Write(b []byte) (int, error) {
	w.messages <- string(b)
	return len(b), nil
}

// TestAChangeIsToldWithinASecond checks that the stream reports a task that is enqueued elsewhere after one
// read of the storage.
func TestAChangeIsToldWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stream := telling{httptest.NewRecorder(), make(chan string, 1000)}
		var all sync.WaitGroup
		all.Go(func() { d.ServeHTTP(stream, requestFor(ctx, "/events")) })
		for i := range 5 {
			time.Sleep(1300 * time.Millisecond) // virtual
			if err := sc.Add(t.Context(), "mail", "send_welcome", 1, nil); err != nil {
				t.Fatal(err)
			}
			began, want := time.Now(), fmt.Sprintf(`"q.mail:waiting":"%d"`, 21+i)
			for message := ""; !strings.Contains(message, want); message = <-stream.messages {
				if took := time.Since(began); took > sampler.Period {
					t.Fatalf("after %v the stream does not tell %s", took, want)
				}
			}
			if took := time.Since(began); took > sampler.Period {
				t.Errorf("the stream tells %s after %v, want %v at most", want, took, sampler.Period)
			}
		}
		cancel()
		all.Wait()
	})
}

// TestAPageHasTheMarksOfItsLook checks the marks in a page, which a browser compares with the first message
// of the stream.
func TestAPageHasTheMarksOfItsLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		marks := func() map[string]string { return watchedBy(t, answer(t, d, "/tasks?queue=mail")) }
		before := marks()
		if got := cells(d.server.sampler.Last())["q.mail:mark"]; got == "" || before["q.mail:mark"] != got {
			t.Errorf("the page has the mark %q, and the stream %q", before["q.mail:mark"], got)
		}
		if err := sc.Add(t.Context(), "mail", "send_welcome", 1, nil); err != nil {
			t.Fatal(err)
		}
		d.server.sampler.Changed()
		if after := marks(); after["q.mail:mark"] == before["q.mail:mark"] {
			t.Error("a task more does not change the mark of its queue")
		}
	})
}

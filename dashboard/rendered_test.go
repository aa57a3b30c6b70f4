package dashboard

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// asAdmin returns a configuration that takes each request for that of an admin.
func asAdmin() Config {
	return Config{Who: func(*http.Request) (access.User, bool) {
		return access.User{Name: "local", Role: access.Admin}, true
	}}
}

// TestAPageOfALookIsRenderedOnce checks that a page is rendered once for all viewers who may see the same,
// until the next read.
func TestAPageOfALookIsRenderedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Handler(sc.Store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		s := d.server
		now, err := s.sampler.Sample(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ann, bo := access.User{Name: "ann", Role: access.Admin}, access.User{Name: "bo", Role: access.Viewer}
		page := func(path, encoding string, v view) *renderedPage {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Header.Set("Accept-Encoding", encoding)
			v.Sample = now
			return s.rendered.page(r, &v)
		}
		first := page("/", "gzip", view{User: ann})
		if first == nil || page("/", "gzip", view{User: ann}) != first {
			t.Error("a page is rendered again within a look")
		}
		for what, other := range map[string]*renderedPage{
			"another user": page("/", "gzip", view{User: bo}), "a theme": page("/", "gzip", view{User: ann, Theme: "dark"}),
			"another address": page("/?span=5m", "gzip", view{User: ann}), "no gzip": page("/", "", view{User: ann}),
		} {
			if other == nil || other == first {
				t.Errorf("%s has the same page, or none", what)
			}
		}
		if page("/", "gzip", view{User: ann, Notice: &notice{}}) != nil {
			t.Error("what an action did is told to others")
		}
		rendersOnce(t, first)
		time.Sleep(2 * sampler.Period) // virtual
		if now, err = s.sampler.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		if page("/", "gzip", view{User: ann}) == first {
			t.Error("a page outlives its look")
		}
	})
}

// rendersOnce fails the test if a page is rendered for more than one of many viewers.
func rendersOnce(t *testing.T, page *renderedPage) {
	t.Helper()
	renders := 0
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			body, err := page.get(t.Context(), func() ([]byte, error) { renders++; return []byte("page"), nil })
			if err != nil || string(body) != "page" {
				t.Errorf("got %q, %v", body, err)
			}
		})
	}
	all.Wait()
	if renders != 1 {
		t.Errorf("rendered %d times, want once", renders)
	}
}

// held is a storage whose counts wait if a test wants that.
type held struct {
	storage.Storage

	wait chan struct{} // if it is nil, they do not wait
}

func (h *held) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	if h.wait != nil {
		<-h.wait
	}
	return h.Storage.Stats(ctx, queues...)
}

// TestARequestThatEndsShowsTheLastSample checks a request that ends while another one reads the storage.
func TestARequestThatEndsShowsTheLastSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		store := &held{Storage: sc.Store}
		d, err := Handler(store, asAdmin())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.server.sampler.Sample(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * sampler.Period) // virtual
		store.wait = make(chan struct{})
		go func() { _, _ = d.server.sampler.Sample(t.Context()) }() // for another viewer
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, path := range []string{"/", "/queues", "/tasks", "/dead", "/search?q=a"} {
			if w := fetch(ctx, d, path); w.Code >= 500 {
				t.Errorf("GET %s: %d, want a page or an error of the request", path, w.Code)
			}
		}
		close(store.wait)
	})
}

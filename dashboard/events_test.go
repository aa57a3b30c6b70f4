package dashboard

import (
	"context"
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
)

// TestStreamsEndWithRun: a server that shuts down waits for them.
func TestStreamsEndWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "calm", 0)
		if err != nil {
			t.Fatal(err)
		}
		var logged strings.Builder
		d, err := Handler(sc.Store, Config{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream := func() int {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil)
			r.Host, r.RemoteAddr = "localhost", "127.0.0.1:4000"
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			return w.Code
		}
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

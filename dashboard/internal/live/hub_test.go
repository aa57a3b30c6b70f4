package live

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStreamIsToldNothingOfLongAgo checks that a stream gets no cells that were sent before the last stream
// left.
func TestAStreamIsToldNothingOfLongAgo(t *testing.T) {
	h := New()
	watch := func(ctx context.Context) { <-ctx.Done() }
	h.join(t.Context(), watch)
	h.Tell(map[string]string{"all.dead": "1"})
	h.leave()
	h.join(t.Context(), watch)
	defer h.leave()
	if data, _, _ := h.next(0); data != nil {
		t.Errorf("a new stream is told %s", data)
	}
	h.Tell(map[string]string{"all.dead": "2"})
	if data, _, _ := h.next(0); !strings.Contains(string(data), `"all.dead":"2"`) {
		t.Errorf("a new stream is told %q", data)
	}
}

// TestSlowStreamsShareWhatTheyAreSent checks that a stream which is some versions behind takes little memory
// of its own, however much changes: it is sent slices that all streams share.
func TestSlowStreamsShareWhatTheyAreSent(t *testing.T) {
	h := New()
	tell := func(version, busy int) {
		cells := map[string]string{}
		for i := range 2000 {
			cells[fmt.Sprint("cell-", i)] = fmt.Sprint(version * min(1, max(0, busy-i)))
		}
		h.Tell(cells)
	}
	for _, busy := range []int{2, 100, 2000} {
		tell(1, busy)
		_, known, _ := h.next(0)
		for late := 1; late < kept; late++ {
			tell(late+1, busy)
			one, version, _ := h.next(known)
			other, _, _ := h.next(known)
			if full := len(h.all()); &one[0] != &other[0] && len(one) > full/mostCopied {
				t.Errorf("%d busy cells, %d versions late: %d bytes for one stream, want them shared", busy, late, len(one))
			}
			if version != h.version || len(one) == 0 {
				t.Errorf("a stream knows version %d of %d after %d bytes", version, h.version, len(one))
			}
		}
	}
}

// strict is an answer as HTTP/2 has it: once a deadline has passed it is at an end, whether somebody writes or not.
type strict struct {
	*httptest.ResponseRecorder

	timer *time.Timer
	ended atomic.Bool
}

func (s *strict) SetWriteDeadline(at time.Time) error {
	if s.timer != nil {
		s.timer.Stop()
	}
	if !at.IsZero() {
		s.timer = time.AfterFunc(time.Until(at), func() { s.ended.Store(true) })
	}
	return nil
}

// TestAQuietStreamHasNoDeadline checks that a stream over HTTP/2 lives on while nothing changes.
func TestAQuietStreamHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), 5*time.Minute)
		defer end()
		w := &strict{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		New().Serve(w, r, func(ctx context.Context) { <-ctx.Done() }, func() bool { return true })
		if n := strings.Count(w.Body.String(), ": quiet"); w.ended.Load() || n < 20 {
			t.Errorf("ended by a deadline: %v, after %d messages", w.ended.Load(), n)
		}
	})
}

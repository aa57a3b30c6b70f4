package live

import (
	"context"
	"strings"
	"testing"
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

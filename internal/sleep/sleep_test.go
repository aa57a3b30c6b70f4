package sleep_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/internal/sleep"
)

// TestForEndsWithWhicheverIsFirst: the time or the context.
func TestForEndsWithWhicheverIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		if !sleep.For(ctx, 2*time.Second) || time.Since(begun) != 2*time.Second {
			t.Errorf("it ended after %v, want the two seconds asked for", time.Since(begun))
		}
		if sleep.For(ctx, 2*time.Second) || time.Since(begun) != 3*time.Second {
			t.Errorf("it ended after %v, want the end of the context", time.Since(begun))
		}
	})
}

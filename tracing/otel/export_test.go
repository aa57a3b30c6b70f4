package otel

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/midgehq/midge/storage"
)

// Remembered is how many attempts are remembered for the next ones of their tasks.
func (t *Tracing) Remembered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.last) + len(t.older)
}

// Remember remembers an attempt that failed.
func (t *Tracing) Remember(ref storage.Ref, attempt trace.SpanContext) { t.remember(ref, attempt) }

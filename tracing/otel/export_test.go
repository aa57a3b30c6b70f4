package otel

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/midgehq/midge/storage"
)

// Remembered returns how many attempts are remembered for the next attempts of their tasks.
func (t *Tracing) Remembered() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.last) + len(t.older)
}

// Remember remembers a failed attempt.
func (t *Tracing) Remember(ref storage.Ref, attempt trace.SpanContext) { t.remember(ref, attempt) }

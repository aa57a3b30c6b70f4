// Package contain calls functions of the application that run within midge, such as backoffs and
// log handlers. Their panics must not end the process, and a runtime.Goexit of theirs must not end
// a goroutine of midge.
package contain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// ErrGoexit is the error of a call that ended its goroutine instead of returning.
var ErrGoexit = errors.New("runtime.Goexit was called")

// Call calls a function in a goroutine of its own, because nothing else can stop a runtime.Goexit,
// and waits for it. It returns nil if the function returned, ErrGoexit if it ended its
// goroutine, and the result of panicked for the value if it panicked. panicked is called on the
// stack of the panic.
func Call(call func(), panicked func(value any) error) error {
	err := ErrGoexit
	done := make(chan struct{})
	go func() { // ends with the call
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = panicked(v)
			}
		}()
		call()
		err = nil
	}()
	<-done
	return err
}

// Handler returns a handler that passes lines on to h. A line in whose handling h panics, or ends
// its goroutine, is lost, and the error reports that.
func Handler(h slog.Handler) slog.Handler { return handler{h} }

type handler struct{ to slog.Handler }

// Enabled reports whether lines of a level are handled. If the handler panics, Enabled returns
// true, so that Handle returns that panic.
func (h handler) Enabled(ctx context.Context, level slog.Level) (on bool) {
	defer func() {
		if recover() != nil {
			on = true
		}
	}()
	return h.to.Enabled(ctx, level)
}

// Handle passes a line on.
func (h handler) Handle(ctx context.Context, line slog.Record) (err error) {
	failed := Call(func() { err = h.to.Handle(ctx, line) }, func(value any) error {
		return fmt.Errorf("panic: %v", value)
	})
	return errors.Join(failed, err)
}

// WithAttrs returns a handler whose lines have further attributes.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler { return handler{h.to.WithAttrs(attrs)} }

// WithGroup returns a handler that puts further attributes into a group.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.to.WithGroup(name)} }

package contain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/contain"
)

func asError(value any) error { return fmt.Errorf("it panicked: %v", value) }

func TestCall(t *testing.T) {
	for name, c := range map[string]struct {
		call func()
		want string
	}{
		"returns":           {func() {}, "<nil>"},
		"panics":            {func() { panic("boom") }, "it panicked: boom"},
		"panics with nil":   {func() { panic(nil) }, "it panicked: panic called with nil argument"},
		"ends its own":      {func() { runtime.Goexit() }, contain.ErrGoexit.Error()},
		"ends in a deferal": {func() { defer runtime.Goexit(); panic("boom") }, contain.ErrGoexit.Error()},
	} {
		if got := fmt.Sprint(contain.Call(c.call, asError)); got != c.want {
			t.Errorf("a call that %s: got %s, want %s", name, got, c.want)
		}
	}
}

// bad is a handler that fails in Enabled or Handle.
type bad struct {
	slog.Handler

	enabled, handle func()
}

func (b bad) Enabled(ctx context.Context, level slog.Level) bool {
	b.enabled()
	return b.Handler.Enabled(ctx, level)
}

func (b bad) Handle(ctx context.Context, line slog.Record) error {
	b.handle()
	return b.Handler.Handle(ctx, line)
}

func TestHandler(t *testing.T) {
	nothing, boom := func() {}, func() { panic("boom") }
	var text strings.Builder
	plain := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo})
	for name, c := range map[string]struct {
		to     slog.Handler
		failed string
		writes bool
	}{
		"plain":          {plain, "<nil>", true},
		"Handle panics":  {bad{plain, nothing, boom}, "panic: boom", false},
		"Handle exits":   {bad{plain, nothing, runtime.Goexit}, contain.ErrGoexit.Error(), false},
		"Enabled panics": {bad{plain, boom, nothing}, "<nil>", true},
	} {
		text.Reset()
		h := contain.Handler(c.to)
		if !h.Enabled(t.Context(), slog.LevelInfo) {
			t.Errorf("%s: lines of a level that is on, or not known, are off", name)
		}
		var line slog.Record
		line.Message = "hello"
		if err := h.Handle(t.Context(), line); fmt.Sprint(err) != c.failed {
			t.Errorf("%s: got %v, want %s", name, err, c.failed)
		}
		if wrote := strings.Contains(text.String(), "hello"); wrote != c.writes {
			t.Errorf("%s: wrote %q", name, &text)
		}
	}
	text.Reset()
	slog.New(contain.Handler(plain)).With("a", 1).WithGroup("g").Info("hello", "b", 2)
	if got := text.String(); !strings.Contains(got, "a=1") || !strings.Contains(got, "g.b=2") {
		t.Errorf("got %q, want the attributes and the group", got)
	}
	if contain.Handler(plain).Enabled(t.Context(), slog.LevelDebug) {
		t.Error("lines of a level that is off are on")
	}
	if err := contain.Handler(bad{refusing{plain}, nothing, nothing}).Handle(t.Context(), slog.Record{}); !errors.Is(err, errFull) {
		t.Errorf("got %v, want the error of the handler", err)
	}
}

var errFull = errors.New("the disk is full")

type refusing struct{ slog.Handler }

func (refusing) Handle(context.Context, slog.Record) error { return errFull }

package redis

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestTheDriversLinesAreWarnings(t *testing.T) {
	var out bytes.Buffer
	l := &driverLog{slog.NewTextHandler(&out, nil)}
	l.Printf(t.Context(), "sentinel: new master=%q addr=%q\n%v", "m", "10.0.0.1:6379", errors.New("\x1b[2J"))
	got := out.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=WARN") || !strings.HasSuffix(got, "driver=go-redis\n") ||
		!strings.Contains(got, "sentinel: new master") || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
	out.Reset()
	quiet := &driverLog{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError})}
	quiet.Printf(t.Context(), "a line")
	if out.Len() > 0 {
		t.Errorf("got %q of a logger for errors alone", out.String())
	}
}

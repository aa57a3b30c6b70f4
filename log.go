package midge

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

// logOf returns the log that a configuration names, or a log that writes warnings and errors to the
// default logger of slog. On the storage of a test kit its lines have the time of the kit.
func logOf(cfg *RunnerConfig, store storage.Storage) runner.Log {
	now := runner.WallClock(store)
	byDefault := slogLog{slog.Default, slog.LevelWarn, now}
	switch {
	case cfg.Logger != nil:
		kit, _ := store.(runner.Clocked) // otherwise the logger has a clock of its own
		// zap's usual configurations add the caller in midge and its stack. Both only distract: a
		// dead task is no fault of midge.
		own := cfg.Logger.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zapcore.InvalidLevel))
		return &containedLog{to: zapLog{own, kit}, instead: byDefault}
	case cfg.Slog != nil:
		own := slogLog{func() *slog.Logger { return cfg.Slog }, slog.Level(-1 << 20), now}
		return &containedLog{to: own, instead: byDefault}
	}
	return &containedLog{to: byDefault, instead: byDefault}
}

// containedLog is a log whose panics do not end the process, and whose calls of runtime.Goexit do
// not end a goroutine of the runner. The lines in which it does either are lost.
type containedLog struct {
	to, instead runner.Log
	failed      sync.Once
}

// Enabled reports whether lines of a level are written. If the log panics, Enabled returns true, so
// that Write meets that panic. It is called for each success, so that a goroutine of its own, which
// alone could stop a runtime.Goexit, would cost too much.
func (l *containedLog) Enabled(level slog.Level) (on bool) {
	defer func() {
		if recover() != nil {
			on = true
		}
	}()
	return l.to.Enabled(level)
}

// Write writes a line. It reports the first failure of the log to the default logger of slog.
func (l *containedLog) Write(level slog.Level, line string, attrs ...slog.Attr) {
	err := contain.Call(func() { l.to.Write(level, line, attrs...) }, panicked)
	if err == nil {
		return
	}
	l.failed.Do(func() {
		report := fmt.Sprintf("the logger of a runner fails, and lines are lost: %v", err)
		_ = contain.Call(func() { l.instead.Write(slog.LevelError, report) }, panicked) // the last resort
	})
}

// zapLog writes a runner's lines to a logger of zap.
type zapLog struct {
	to  *zap.Logger
	kit runner.Clocked // nil for none
}

// Enabled reports whether lines of a level are written.
func (l zapLog) Enabled(level slog.Level) bool { return l.to.Core().Enabled(zapLevel(level)) }

// Write writes a line.
func (l zapLog) Write(level slog.Level, line string, attrs ...slog.Attr) {
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = zap.Any(a.Key, a.Value.Any())
	}
	if entry := l.to.Check(zapLevel(level), line); entry != nil {
		if l.kit != nil {
			entry.Time = l.kit.Clock()
		}
		entry.Write(fields...)
	}
}

// slogLog writes a runner's lines of a least level or above to a logger of slog.
type slogLog struct {
	to    func() *slog.Logger
	least slog.Level
	now   func() time.Time
}

// Enabled reports whether lines of a level are written.
func (l slogLog) Enabled(level slog.Level) bool {
	//nolint:forbidigo // no call stands behind a line
	return level >= l.least && l.to().Enabled(context.Background(), level)
}

// Write writes a line, without a source location.
func (l slogLog) Write(level slog.Level, line string, attrs ...slog.Attr) {
	if !l.Enabled(level) {
		return
	}
	record := slog.NewRecord(l.now(), level, short(line, attrs), 0)
	record.AddAttrs(attrs...)
	//nolint:forbidigo // likewise, and nobody is there to tell
	_ = l.to().Handler().Handle(context.Background(), record)
}

// short returns a line without the parts that its attributes repeat: the task at its beginning, and
// the duration at its end.
func short(line string, attrs []slog.Attr) string {
	said := make(map[string]slog.Value, len(attrs))
	for _, a := range attrs {
		said[a.Key] = a.Value
	}
	ref := Ref{Queue: said["queue"].String(), ID: said["task"].String()}
	rest, found := strings.CutPrefix(line, said["kind"].String()+" "+ref.String()+" ")
	if !found {
		return line
	}
	const took = ", took "
	if i := strings.LastIndex(rest, took); i >= 0 && said["took"].Kind() == slog.KindDuration {
		if _, err := time.ParseDuration(rest[i+len(took):]); err == nil {
			rest = rest[:i]
		}
	}
	return rest
}

// zapLevel returns zap's level of the same name; slog's levels are four apart.
func zapLevel(level slog.Level) zapcore.Level { return zapcore.Level(level / 4) }

// slogLevel returns slog's level of the same name.
func slogLevel(level zapcore.Level) slog.Level { return slog.Level(level) * 4 }

package midge

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge/internal/runner"
)

// logOf gives the log that a configuration names, and else one that writes warnings and errors to the
// default logger of slog.
func logOf(cfg *RunnerConfig) runner.Log {
	switch {
	case cfg.Logger != nil:
		// Without what zap's usual configurations add: where in midge a line was written, and the
		// stack of that. A task that is dead is no fault of midge's.
		return zapLog{cfg.Logger.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zapcore.InvalidLevel))}
	case cfg.Slog != nil:
		return slogLog{to: func() *slog.Logger { return cfg.Slog }, least: slog.Level(-1 << 20)}
	}
	return slogLog{to: slog.Default, least: slog.LevelWarn}
}

// zapLog writes the lines of a runner to a logger of zap.
type zapLog struct{ to *zap.Logger }

// Enabled reports whether lines of a level are written.
func (l zapLog) Enabled(level slog.Level) bool { return l.to.Core().Enabled(zapLevel(level)) }

// Write writes a line.
func (l zapLog) Write(level slog.Level, line string, attrs ...slog.Attr) {
	fields := make([]zap.Field, len(attrs))
	for i, a := range attrs {
		fields[i] = zap.Any(a.Key, a.Value.Any())
	}
	l.to.Log(zapLevel(level), line, fields...)
}

// slogLog writes the lines of a runner to a logger of slog, from a level on.
type slogLog struct {
	to    func() *slog.Logger
	least slog.Level
}

// Enabled reports whether lines of a level are written.
func (l slogLog) Enabled(level slog.Level) bool {
	//nolint:forbidigo // no call stands behind a line
	return level >= l.least && l.to().Enabled(context.Background(), level)
}

// Write writes a line. It does not say where in midge that was.
func (l slogLog) Write(level slog.Level, line string, attrs ...slog.Attr) {
	if !l.Enabled(level) {
		return
	}
	record := slog.NewRecord(time.Now(), level, short(line, attrs), 0)
	record.AddAttrs(attrs...)
	//nolint:forbidigo // likewise, and nobody is there to tell
	_ = l.to().Handler().Handle(context.Background(), record)
}

// short is a line without what its attributes say: the task at its beginning, and how long it took at its
// end.
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

// zapLevel gives zap's level of the same name: slog's are four apart.
func zapLevel(level slog.Level) zapcore.Level { return zapcore.Level(level / 4) }

// slogLevel gives slog's level of the same name.
func slogLevel(level zapcore.Level) slog.Level { return slog.Level(level) * 4 }

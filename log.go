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

// logOf returns the log that a configuration names, or one that writes warnings and errors to the
// default logger of slog.
func logOf(cfg *RunnerConfig) runner.Log {
	switch {
	case cfg.Logger != nil:
		// zap's usual configurations add the caller in midge and its stack. Both only distract: a
		// dead task is no fault of midge.
		return zapLog{cfg.Logger.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zapcore.InvalidLevel))}
	case cfg.Slog != nil:
		return slogLog{to: func() *slog.Logger { return cfg.Slog }, least: slog.Level(-1 << 20)}
	}
	return slogLog{to: slog.Default, least: slog.LevelWarn}
}

// zapLog writes a runner's lines to a logger of zap.
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

// slogLog writes a runner's lines of a least level or above to a logger of slog.
type slogLog struct {
	to    func() *slog.Logger
	least slog.Level
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
	record := slog.NewRecord(time.Now(), level, short(line, attrs), 0)
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

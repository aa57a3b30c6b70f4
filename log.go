package midge

import (
	"fmt"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge/storage"
)

// zapLog writes the lines of a runner to a logger of zap.
type zapLog struct{ to *zap.Logger }

// newZapLog leaves out what zap's usual configurations add: where in midge a line was
// written, and the stack of that. A task that is dead is no fault of midge's.
func newZapLog(to *zap.Logger) zapLog {
	return zapLog{to.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zapcore.InvalidLevel))}
}

// Enabled reports whether lines of a level are written.
func (l zapLog) Enabled(level slog.Level) bool { return l.to.Core().Enabled(zapLevel(level)) }

// Write writes a line.
func (l zapLog) Write(level slog.Level, line string) { l.to.Log(zapLevel(level), line) }

func (l zapLog) warnf(format string, args ...any) {
	l.Write(slog.LevelWarn, storage.PrintableText(fmt.Sprintf(format, args...), maxLine))
}

// maxLine is what a line of names that may be long is cut to.
const maxLine = 8 << 10

// zapLevel gives zap's level of the same name: slog's are four apart.
func zapLevel(level slog.Level) zapcore.Level { return zapcore.Level(level / 4) }

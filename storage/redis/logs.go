package redis

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/storage"
)

// SendLogs directs the log lines of the driver go-redis, for example about lost connections, to a
// logger, as warnings with the attribute driver=go-redis. With nil it discards them. Without SendLogs
// they go to the standard error.
//
// The driver has one logger for the whole process, for its other users too, and reads it without a
// lock. So main calls SendLogs at most once, before anything opens a storage or a client of go-redis.
func SendLogs(to *slog.Logger) {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(&driverLog{contain.Handler(to.Handler())})
}

// driverLog is a logger of go-redis that writes to a slog.Handler.
type driverLog struct{ to slog.Handler }

// driverLine is the length in bytes to which a line of the driver is cut.
const driverLine = 4 << 10

// Printf writes a line as a warning: the driver has no levels, and logs only what went wrong.
func (l *driverLog) Printf(ctx context.Context, format string, args ...any) {
	if !l.to.Enabled(ctx, slog.LevelWarn) {
		return
	}
	line := storage.PrintableText(fmt.Sprintf(format, args...), driverLine)
	record := slog.NewRecord(time.Now(), slog.LevelWarn, line, 0)
	record.AddAttrs(slog.String("driver", "go-redis"))
	_ = l.to.Handle(ctx, record) // there is nobody to whom to report an error
}

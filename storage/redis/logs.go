package redis

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// SendLogs has the lines that the driver go-redis writes by itself, of connections that it lost, say,
// go to a logger, as warnings with the attribute driver=go-redis; with nil they go nowhere. Without
// it they go to the standard error.
//
// The driver has one logger for the whole process, its other users included, and reads it without a
// lock. So main calls SendLogs, if at all, once and before anything opens a storage or a client of
// go-redis.
func SendLogs(to *slog.Logger) {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(&driverLog{to.Handler()})
}

// driverLog takes the lines of the driver.
type driverLog struct{ to slog.Handler }

// driverLine is what a line of the driver is cut to.
const driverLine = 4 << 10

// Printf writes a line. The driver has no levels: what it says unasked went wrong.
func (l *driverLog) Printf(ctx context.Context, format string, args ...any) {
	if !l.to.Enabled(ctx, slog.LevelWarn) {
		return
	}
	line := storage.PrintableText(fmt.Sprintf(format, args...), driverLine)
	record := slog.NewRecord(time.Now(), slog.LevelWarn, line, 0)
	record.AddAttrs(slog.String("driver", "go-redis"))
	_ = l.to.Handle(ctx, record) // nobody is there to tell
}

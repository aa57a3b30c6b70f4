//go:build long

package pgfault

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage/postgres"
)

// TestATransactionStaysOpen keeps a transaction open for ten minutes, beside 500 jobs a
// second. The jobs must go on at half that rate at least, a runner must warn within a
// minute, and two minutes after the end of the transaction all must be as before.
func TestATransactionStaysOpen(t *testing.T) {
	testserver.RequirePostgres(t)
	const rate, alarm, open, recovery = 500, time.Minute, 10 * time.Minute, 2 * time.Minute
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	cfg := fresh(t, postgres.Config{URL: server.URL()})
	warned := make(chan string, 100)
	l := newLoad(t, cfg, rate, warned)

	l.report("before", 30*time.Second)
	end := hold(t, server.URL())
	begun := time.Now()
	l.report("the first minute", alarm)
	select {
	case w := <-warned:
		t.Logf("the runner warned: %s", w)
	default:
		t.Errorf("no warning in %v", alarm)
	}
	for time.Since(begun) < open-30*time.Second {
		l.report("open", min(time.Minute, open-30*time.Second-time.Since(begun)))
	}
	if n, _ := l.report("the last 30 s", 30*time.Second); n < rate/2 {
		t.Errorf("%.0f jobs a second at the end, want %d at least", n, rate/2)
	}
	end()
	l.report("recovery", recovery)
	in := l.in.Load()
	n, p99 := l.report("after", 30*time.Second)
	// A busy machine enqueues less. The test is that all enqueued jobs run at once.
	if enqueued := float64(l.in.Load()-in) / 30; n < enqueued*95/100 || p99 > time.Second {
		t.Errorf("after it %.0f of %.0f jobs a second, p99 %v, want all and less than a second", n, enqueued, p99)
	}
}

// timed is a job that carries the time when it was enqueued.
type timed struct{ At time.Time }

// load enqueues jobs at a rate and runs them.
type load struct {
	*testing.T

	mu     sync.Mutex // guards waited
	waited []time.Duration
	in     atomic.Int64
}

func newLoad(t *testing.T, cfg postgres.Config, rate int, warned chan<- string) *load {
	t.Helper()
	l := &load{T: t}
	producer, _ := opened(t, cfg)
	client := must(midge.NewClient(producer, midge.ClientConfig{}))(t)
	store, _ := opened(t, cfg)
	log := zap.New(&listening{zapcore.NewNopCore(), warned})
	runner := must(midge.NewRunner(store, midge.RunnerConfig{Concurrency: 32, Logger: log}))(t)
	succeed(t, midge.Handle(runner, func(_ context.Context, job timed) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waited = append(l.waited, time.Since(job.At))
		return nil
	}))
	start(t, runner)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var producing sync.WaitGroup
	t.Cleanup(func() { cancel(); producing.Wait() })
	due := make(chan struct{}, rate)
	producing.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				due <- struct{}{} // a ticker drops ticks that nobody receives in time
			case <-ctx.Done():
				close(due)
				return
			}
		}
	})
	for range 32 {
		producing.Go(func() {
			for range due {
				if _, err := client.Enqueue(ctx, timed{At: time.Now()}); err != nil && ctx.Err() == nil {
					t.Errorf("enqueue: %v", err)
				}
				l.in.Add(1)
			}
		})
	}
	return l
}

// listening is a log core that passes on the warnings that vacuum is held back.
type listening struct {
	zapcore.Core

	warned chan<- string
}

func (l *listening) Enabled(zapcore.Level) bool { return true }

func (l *listening) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, l)
}

func (l *listening) Write(e zapcore.Entry, _ []zapcore.Field) error {
	if e.Level == zapcore.WarnLevel && strings.Contains(e.Message, "vacuum is held back") {
		l.warned <- e.Message
	}
	return nil
}

// report waits for a time d and returns how many jobs ran a second and the 99th
// percentile of how long they waited.
func (l *load) report(what string, d time.Duration) (rate float64, p99 time.Duration) {
	l.Helper()
	l.mu.Lock()
	l.waited = nil
	l.mu.Unlock()
	in := l.in.Load()
	<-time.After(d)
	l.mu.Lock()
	waited := l.waited
	l.waited = nil
	l.mu.Unlock()
	slices.Sort(waited)
	if len(waited) == 0 {
		l.Fatalf("%s: no job ran", what)
	}
	rate, p99 = float64(len(waited))/d.Seconds(), waited[len(waited)*99/100]
	l.Logf("%s, %v: %.0f enqueued and %.0f run a second, waited %v, p99 %v", what, d.Round(time.Second),
		float64(l.in.Load()-in)/d.Seconds(), rate, waited[len(waited)/2].Round(time.Millisecond),
		p99.Round(time.Millisecond))
	return rate, p99
}

//go:build unix

package faulttest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// tickJob is the job of one of many schedules.
type tickJob struct{ Name string }

// TestManySchedulesTickTogether has two runners with thousands of schedules of the same moments, declared or kept in
// the storage. It checks that each tick is made once, and prints how late the ticks of a moment run and how long the
// runners drain while they tick.
func TestManySchedulesTickTogether(t *testing.T) {
	require(t)
	if full {
		for _, kept := range []bool{false, true} {
			manyOn(t, 10_000, kept, 20*time.Second, 5*time.Second)
			manyOn(t, 100_000, kept, 2*time.Minute, time.Minute)
		}
		return
	}
	t.Parallel()
	manyOn(t, 1000, false, 5*time.Second, time.Minute) // its figures do not count
}

// manyOn tests so many schedules on each server. most bounds how late the ticks run.
func manyOn(t *testing.T, size int, kept bool, period, most time.Duration) {
	t.Helper()
	for _, k := range []kind{oneRedis, onePostgres} {
		t.Run(fmt.Sprintf("%s-%d-kept-%t", k, size, kept), func(t *testing.T) {
			if !full {
				testserver.Parallel(t)
			}
			newManyRig(t, ownServer(t, k, testserver.Options{}), size, period).measure(kept, most)
		})
	}
}

// measure starts two runners, measures the ticks of two moments, and shuts the runners down at the
// beginning of a third one. most bounds how late the ticks run.
func (m *manyRig) measure(kept bool, most time.Duration) {
	m.Helper()
	if kept {
		m.keep(midge.AllMissed(0))
	}
	begun := time.Now()
	for range 2 {
		if kept {
			m.startOn(func(*midge.Runner) {})
		} else {
			m.start()
		}
	}
	m.awaitDeclared()
	first := time.Now().Truncate(m.period).Add(m.period)
	for _, moment := range []time.Time{first, first.Add(m.period)} {
		m.awaitRan(moment, m.size)
		late := m.late(moment)
		m.Logf("%d ticks of a moment run late by %s", m.size, quantiles(late))
		if late[m.size-1] > machine.Stretch(most, begun) {
			m.Errorf("a tick ran %v late, want %v at most", late[m.size-1], most)
		}
	}
	m.awaitRan(first.Add(2*m.period), 1)
	drained := time.Now()
	m.shutdown()
	took := time.Since(drained)
	m.Logf("drained in %v, while the ticks of a moment were made", took.Round(time.Millisecond))
	if took > machine.Stretch(manyGrace+2*time.Second, begun) {
		m.Errorf("the drain took %v, want the grace period of %v and 2 s", took, manyGrace)
	}
}

const manyGrace = 5 * time.Second

// manyRig is a fleet of runners with the same schedules. It records when their ticks run.
type manyRig struct {
	*testing.T

	place   dialing
	store   storage.Storage
	size    int
	period  time.Duration
	runners []*midge.Runner
	since   time.Time // for allLate: the ticks after it count

	mu  sync.Mutex // guards ran
	ran map[time.Time]map[string]time.Duration
}

func newManyRig(t *testing.T, s *server, size int, period time.Duration) *manyRig {
	t.Helper()
	m := &manyRig{T: t, place: s.place(t), size: size, period: period, ran: make(map[time.Time]map[string]time.Duration)}
	m.store = m.open()
	return m
}

func (m *manyRig) open() storage.Storage {
	m.Helper()
	store, err := m.place.open(m.Context())
	must(m.T, err)
	m.Cleanup(func() { must(m.T, store.Close()) })
	return store
}

// start starts a runner that declares all schedules.
func (m *manyRig) start() {
	m.Helper()
	m.startOn(func(r *midge.Runner) {
		for n := range m.size {
			name := fmt.Sprint("s", n)
			must(m.T, r.Periodic(midge.Every(m.period), tickJob{name}, midge.Named(name), midge.AllMissed(0)))
		}
	})
}

// startOn starts a runner that declare has made declare schedules.
func (m *manyRig) startOn(declare func(*midge.Runner)) {
	m.Helper()
	r, err := midge.NewRunner(m.open(), midge.RunnerConfig{Concurrency: 20, Grace: manyGrace, Logger: zap.NewNop()})
	must(m.T, err)
	must(m.T, midge.Handle(r, m.run))
	declare(r)
	must(m.T, r.Start(m.Context()))
	m.runners = append(m.runners, r)
}

// run records the run of a tick.
func (m *manyRig) run(ctx context.Context, job tickJob) error {
	info, _ := midge.Current(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	tick := info.Tick.UTC()
	names := m.ran[tick]
	if names == nil {
		names = make(map[string]time.Duration)
		m.ran[tick] = names
	}
	if _, twice := names[job.Name]; twice {
		m.Errorf("the tick of %s at %v has run twice", job.Name, tick)
	}
	names[job.Name] = time.Since(tick)
	return nil
}

// awaitDeclared waits until all schedules are stored.
func (m *manyRig) awaitDeclared() {
	m.Helper()
	begun := time.Now()
	m.await("the schedules are declared", func() bool {
		s, err := m.store.Stats(m.Context(), midge.DefaultQueue)
		must(m.T, err)
		return s[0].Cursors == int64(m.size)
	})
	m.Logf("%d schedules were declared in %v", m.size, time.Since(begun).Round(time.Millisecond))
}

// awaitRan waits until so many ticks of a moment have run.
func (m *manyRig) awaitRan(moment time.Time, ticks int) {
	m.Helper()
	m.await(fmt.Sprintf("%d ticks of %v have run", ticks, clock(moment)), func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.ran[moment.UTC()]) >= ticks
	})
}

func (m *manyRig) await(what string, is func() bool) {
	m.Helper()
	limit := time.NewTimer(2*m.period + time.Minute)
	defer limit.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-look.C:
		case <-limit.C:
			m.Fatalf("not within two periods and a minute: %s", what)
		}
	}
}

// late returns how late the ticks of a moment ran, sorted.
func (m *manyRig) late(moment time.Time) (late []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.ran[moment.UTC()] {
		late = append(late, d)
	}
	slices.Sort(late)
	return late
}

// shutdown shuts all runners down at once.
func (m *manyRig) shutdown() {
	var all sync.WaitGroup
	for _, r := range m.runners {
		all.Go(func() {
			if err := r.Shutdown(m.Context()); err != nil {
				m.Error(err)
			}
		})
	}
	all.Wait()
}

// TestKeptSchedulesTickOnTime keeps schedules in the storage that are spread by their jitter, and has two runners
// tick them. It checks that each tick is made once, and prints how late the ticks run.
func TestKeptSchedulesTickOnTime(t *testing.T) {
	require(t)
	if !full {
		t.Parallel()
		keptOn(t, 1000, 20*time.Second, 200) // its figures do not count
		return
	}
	keptOn(t, 100_000, 30*time.Minute, 2*60*100_000/1800)
}

// keptOn tests so many kept schedules on each server, each ticking once a period, until so many ticks have run.
func keptOn(t *testing.T, size int, period time.Duration, ticks int) {
	t.Helper()
	for _, k := range []kind{oneRedis, onePostgres} {
		t.Run(fmt.Sprintf("%s-%d", k, size), func(t *testing.T) {
			if !full {
				testserver.Parallel(t)
			}
			m := newManyRig(t, ownServer(t, k, testserver.Options{}), size, period)
			m.keep(midge.Jitter(period))
			for range 2 {
				m.startOn(func(*midge.Runner) {})
			}
			m.since = time.Now().Add(time.Second) // ticks before that were missed while no runner lived
			m.await(fmt.Sprintf("%d ticks have run", ticks), func() bool { return len(m.allLate()) >= ticks })
			m.Logf("%d kept schedules, each every %v: %d ticks run late by %s", size, period, ticks, quantiles(m.allLate()))
			m.shutdown()
		})
	}
}

// keep keeps the schedules in the storage, several at a time.
func (m *manyRig) keep(opts ...midge.PeriodicOption) {
	m.Helper()
	client, err := midge.NewClient(m.store, midge.ClientConfig{})
	must(m.T, err)
	begun := time.Now()
	next := make(chan string)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for name := range next {
				err := client.Queue(midge.DefaultQueue).SetSchedule(m.Context(), name, midge.Every(m.period), tickJob{name},
					opts...)
				if err != nil {
					m.Error(err)
				}
			}
		})
	}
	for n := range m.size {
		next <- fmt.Sprint("s", n)
	}
	close(next)
	all.Wait()
	m.Logf("%d schedules were set in %v", m.size, time.Since(begun).Round(time.Millisecond))
}

// allLate returns how late all ticks ran, sorted.
func (m *manyRig) allLate() (late []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for tick, names := range m.ran {
		for _, d := range names {
			if tick.After(m.since) {
				late = append(late, d)
			}
		}
	}
	slices.Sort(late)
	return late
}

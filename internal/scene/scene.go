// Package scene fills storages with the states that the tests and screenshots of the dashboard
// show.
package scene

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/steps"
	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// Names are the names of the scenes.
var Names = []string{"empty", "calm", "night", "million"}

// Scene is a storage in a state, and the runners and history that belong to it.
type Scene struct {
	Store   storage.Storage
	Session *storage.Session
	Runners []storage.RunnerInfo
	now     func() time.Time
	clock   *time.Duration
	history *ledger.Ledger
}

// finished is a scene that was played up to the time until of its storage. It never changes again: callers of
// Open get copies.
type finished struct {
	*Scene

	until time.Time
}

// played are the finished scenes of this process. The tests of a package open the same few scenes again and
// again, and to play one takes seconds under the race detector.
var played struct {
	sync.Mutex

	scenes map[identity]*finished
}

// identity is the name of a scene, its tasks, and the day on which it was played: the tests in bubbles of
// testing/synctest have other days than all others.
type identity struct {
	name  string
	tasks int
	day   int64
}

// Open returns a copy of the scene with a name, on a memory storage of its own. It plays each scene once, and
// keeps it until the process ends. tasks is the number of tasks of the scene "million". The storage's clock
// may be hours from the clock of this process.
func Open(ctx context.Context, name string, tasks int) (*Scene, error) {
	played.Lock()
	defer played.Unlock()
	which := identity{name, tasks, time.Now().Unix() / (24 * 60 * 60)}
	f := played.scenes[which]
	if f == nil {
		s, err := Play(ctx, name, tasks)
		if err != nil {
			return nil, err
		}
		f = &finished{s, s.now()}
		if played.scenes == nil {
			played.scenes = make(map[identity]*finished)
		}
		played.scenes[which] = f
	}
	return f.copy(), nil
}

// Play makes the scene with a name as Open does, but keeps nothing of it.
func Play(ctx context.Context, name string, tasks int) (*Scene, error) {
	var ahead time.Duration
	now := func() time.Time { return time.Now().Add(ahead) }
	store, err := memory.Open(memory.Config{Now: now})
	if err != nil {
		return nil, err
	}
	s := newScene(store, now, &ahead)
	switch name {
	case "empty":
	case "calm":
		err = s.calm(ctx)
	case "night":
		err = s.night(ctx)
	case "million":
		err = s.million(ctx, tasks)
	default:
		err = fmt.Errorf("scene %q: want one of %s", name, strings.Join(Names, ", "))
	}
	return s, errors.Join(err, s.Beat(ctx))
}

// copy returns a copy of the scene whose clock goes on from the time at which the scene was finished.
func (f *finished) copy() *Scene {
	ahead := time.Until(f.until.Round(0)) // by the wall clock: each bubble has a monotonic clock of its own
	now := func() time.Time { return time.Now().Add(ahead) }
	s := newScene(f.Store.(*memory.Storage).Clone(now), now, &ahead)
	for _, r := range f.Runners {
		r.Queues, r.Kinds = slices.Clone(r.Queues), slices.Clone(r.Kinds)
		r.Running, r.Schedules = slices.Clone(r.Running), slices.Clone(r.Schedules)
		s.Runners = append(s.Runners, r)
	}
	return s
}

func newScene(store storage.Storage, now func() time.Time, ahead *time.Duration) *Scene {
	return &Scene{
		Store: store, Session: storage.NewSession(store, 0), now: now, clock: ahead, history: ledger.New(store),
	}
}

// pass moves the storage's clock on in steps of a minute, with work and an entry in the history
// for each. It lets a claim maintain the named queues.
func (s *Scene) pass(ctx context.Context, d time.Duration, queues ...string) error {
	for minute := 0; d > 0; minute++ {
		if err := s.minute(ctx, minute+2); err != nil {
			return err
		}
		step := min(d, time.Minute)
		*s.clock += step
		d -= step
		if _, err := s.history.Write(ctx); err != nil {
			return err
		}
		if err := s.Beat(ctx); err != nil {
			return err
		}
		if len(queues) == 0 {
			continue
		}
		claim := storage.ClaimRequest{Runner: "sweeper", Lease: time.Minute}
		for _, queue := range queues {
			claim.Queues = append(claim.Queues, storage.ClaimQueue{Name: queue, Max: storage.MaxNone})
		}
		if _, err := s.Session.Claim(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

// Beat sends the heartbeats of the scene's runners.
func (s *Scene) Beat(ctx context.Context) error {
	for i := range s.Runners {
		s.Runners[i].For = time.Hour
		if _, err := s.Session.Extend(ctx, storage.ExtendRequest{Runner: s.Runners[i]}); err != nil {
			return err
		}
	}
	return nil
}

// Add enqueues n tasks of a kind. If alter is not nil, it changes each insert.
func (s *Scene) Add(ctx context.Context, queue, kind string, n int, alter func(i int, in *storage.Insert)) error {
	var ins []storage.Insert
	for i := range n {
		in := storage.Insert{
			Ref: storage.Ref{Queue: queue, ID: storage.NewID()}, Kind: kind, Encoding: "json",
			Payload: fmt.Appendf(nil, `{"user":%d,"mail":"user%d@example.com"}`, i, i), MaxRetries: 3, CrashLimit: 3,
		}
		if alter != nil {
			alter(i, &in)
		}
		if ins = append(ins, in); len(ins) == 500 || i == n-1 {
			if _, err := s.Session.ApplyOne(ctx, storage.Tx{Inserts: ins}); err != nil {
				return err
			}
			ins = ins[:0]
		}
	}
	return nil
}

// End claims up to n tasks of a queue and completes them, or settles each as settle sets it.
func (s *Scene) End(ctx context.Context, queue string, n int, settle func(i int, t storage.Task, st *storage.Settle)) error {
	for i := 0; i < n; {
		claimed, err := s.Session.Claim(ctx, storage.ClaimRequest{
			Runner: s.runner(queue), Queues: []storage.ClaimQueue{{Name: queue}}, Start: min(200, n-i), Lease: time.Minute,
		})
		if err != nil || len(claimed.Tasks) == 0 {
			return err
		}
		var tx storage.Tx
		for j, t := range claimed.Tasks {
			st := storage.Settle{Fence: claimed.Fences[j], Outcome: storage.Complete}
			if settle != nil {
				settle(i, t, &st)
			}
			i++
			if st.Outcome != "" {
				tx.Settles = append(tx.Settles, st)
			}
		}
		if len(tx.Settles) == 0 {
			continue
		}
		if _, err := s.Session.ApplyOne(ctx, tx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scene) runner(queue string) string {
	for i := range s.Runners {
		if slices.Contains(s.Runners[i].Queues, queue) {
			return s.Runners[i].ID
		}
	}
	return "worker-0"
}

// Schedule adds a periodic schedule, which the runners declare unless it is orphaned.
func (s *Scene) Schedule(ctx context.Context, queue, name, spec, zone string, next time.Duration, orphaned bool) error {
	ref := storage.Ref{Queue: queue, ID: storage.CursorPrefix + name}
	d := storage.Declaration{Spec: spec, Zone: zone, Hash: "h-" + name}
	in := storage.Insert{
		Ref: ref, Kind: name, Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
		Cursor: &storage.Cursor{
			Next: s.now().Add(next).Truncate(time.Second), Last: s.now().Add(-time.Hour).Truncate(time.Second),
			Declaration: d.Encode(),
		},
	}
	if _, err := s.Session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		return err
	}
	if orphaned {
		return nil
	}
	for i := range s.Runners {
		s.Runners[i].Schedules = append(s.Runners[i].Schedules, storage.Declared{Ref: ref, Hash: d.Hash})
	}
	return nil
}

func (s *Scene) hire(n int, queues, kinds []string) {
	for i := range n {
		host, pid := fmt.Sprintf("app-%d.internal", i+1), 4100+i
		s.Runners = append(s.Runners, storage.RunnerInfo{
			ID: fmt.Sprintf("%s:%d:%s", host, pid, storage.NewID()[18:]), Host: host, PID: pid,
			Version: "v0.9.0", Queues: queues, Kinds: kinds, Concurrency: 20, Vitals: vitalsOf(i, kinds), Started: s.now().Add(-26 * time.Hour),
		})
	}
}

// vitalsOf returns the vitals of a runner that has run jobs of some kinds.
func vitalsOf(i int, kinds []string) []byte {
	v := vitals.Vitals{Memory: int64(48+7*i) << 20, Goroutines: 31 + 4*i}
	for j, kind := range kinds {
		k := vitals.Kind{Name: kind, Failed: uint64(j % 3 * 5)}
		for n := range 900 / (j + 1) {
			k.Runs.Add(time.Duration(3+j*40+n%17*5) * time.Millisecond)
		}
		v.Kinds = append(v.Kinds, k)
	}
	return v.Encode()
}

var shopQueues = []string{"default", "exports", "images", "mail", "payments", "webhooks"}

var shopKinds = []string{
	"build_export", "charge_card", "clean_up", "nightly_report", "resize_image", "send_invoice", "send_welcome", "deliver_webhook",
}

// calm fills the storage with an ordinary day.
func (s *Scene) calm(ctx context.Context) error {
	s.hire(3, shopQueues, shopKinds)
	if err := s.Beat(ctx); err != nil {
		return err
	}
	err := errors.Join(
		s.hour(ctx),
		s.Add(ctx, "default", "clean_up", 3, func(i int, in *storage.Insert) { in.Delay = time.Duration(i+1) * time.Hour }),
		s.Add(ctx, "mail", "send_welcome", 420, nil), s.End(ctx, "mail", 400, nil),
		s.Add(ctx, "images", "resize_image", 1200, nil), s.End(ctx, "images", 1190, nil),
		s.Add(ctx, "payments", "charge_card", 80, func(_ int, in *storage.Insert) { in.Keep.For = time.Hour }),
		s.End(ctx, "payments", 80, func(i int, _ storage.Task, st *storage.Settle) {
			if i%20 == 7 {
				st.Outcome, st.Error, st.Delay = storage.Fail, "the bank answers 503 Service Unavailable", time.Minute
			}
		}),
		s.Add(ctx, "webhooks", "deliver_webhook", 260, nil), s.End(ctx, "webhooks", 255, nil),
		s.Add(ctx, "exports", "build_export", 6, nil),
		s.Schedule(ctx, "default", "nightly_report", "cron 0 3 * * *", "Europe/Berlin", 5*time.Hour, false),
		s.Schedule(ctx, "default", "clean_up", "every 1h0m0s", "", 59*time.Minute, false),
		s.Schedule(ctx, "exports", "weekly_export", "cron 30 6 * * 1", "", 61*time.Hour, false),
	)
	if err != nil {
		return err
	}
	return s.run(ctx, "exports", 4)
}

// run starts n tasks of a queue that keep running. The first has finished steps.
func (s *Scene) run(ctx context.Context, queue string, n int) error {
	claimed, err := s.Session.Claim(ctx, storage.ClaimRequest{
		Runner: s.runner(queue), Queues: []storage.ClaimQueue{{Name: queue}}, Start: n, Lease: 24 * time.Hour,
	})
	for i, t := range claimed.Tasks {
		s.Runners[0].Running = append(s.Runners[0].Running, storage.Running{
			Ref: t.Ref, Kind: t.Kind, Since: claimed.Now.Add(-time.Duration(i*i) * 71 * time.Second),
		})
	}
	if err != nil || len(claimed.Fences) == 0 {
		return err
	}
	done := steps.Envelope{Steps: []steps.Step{
		{
			Name: "collect the orders", Ended: claimed.Now.Add(-26 * time.Hour), Took: 84 * time.Second,
			Result: []byte(`{"orders":18204,"first":"01JABC","last":"01JXYZ"}`),
		},
		{Name: "a day for late orders", Ended: claimed.Now.Add(-26 * time.Hour), Until: claimed.Now.Add(-2 * time.Hour)},
		{
			Name: long("write the file of the tenant"), Ended: claimed.Now.Add(-time.Hour), Took: 1320 * time.Millisecond,
			Result: []byte(`"exports/2026-11.csv"`),
		},
	}}
	leases := []storage.Extension{{Fence: claimed.Fences[0], Checkpoint: done.Encode()}}
	_, err = s.Session.Extend(ctx, storage.ExtendRequest{Leases: leases})
	return err
}

// The two causes of death in the scene "night".
const (
	CauseMail = "dial tcp 10.0.4.17:25: connect: connection refused"
	CauseDisk = "write /var/exports/%d.csv: no space left on device"
)

// customers are the partitions of the queue payments in the scene "night".
var customers = []string{"acme", "Bäckerei Süß & Söhne <Nord>", long("customer of a reseller"), "globex", "initech"}

// night fills the storage with a night on call: 300 tasks of three kinds died of two causes, one
// queue is paused, one schedule is orphaned, and one task has a kind that no runner knows.
func (s *Scene) night(ctx context.Context) error {
	if err := s.calm(ctx); err != nil {
		return err
	}
	bury := func(text func(i int) string) func(int, storage.Task, *storage.Settle) {
		return func(i int, t storage.Task, st *storage.Settle) {
			if t.Kind == "send_invoice" || t.Kind == "send_digest" || t.Kind == "archive_orders" {
				st.Outcome, st.Error, st.Stack = storage.Fail, text(i), "goroutine 41 [running]:\nmain.send(0x1)\n\t/app/mail.go:88"
			}
		}
	}
	once := func(i int, in *storage.Insert) {
		in.MaxRetries = 0
		in.Headers = map[string]string{"trace": fmt.Sprint("4bf92f3577b34da6", i), "tenant": "acme"}
	}
	mail := bury(func(int) string { return "send to smtp: " + CauseMail })
	disk := bury(func(i int) string { return fmt.Sprintf(CauseDisk, 1000+i) })
	s.Runners[0].Kinds = append(s.Runners[0].Kinds, "archive_orders", "send_digest")
	err := errors.Join(
		s.End(ctx, "mail", 20, nil), s.End(ctx, "images", 10, nil), s.End(ctx, "webhooks", 5, nil),
		s.End(ctx, "exports", 2, nil),
		s.Add(ctx, "mail", "send_invoice", 180, once), s.Add(ctx, "mail", "send_digest", 32, once), s.End(ctx, "mail", 212, mail),
		s.Add(ctx, "archive", "archive_orders", 88, once), s.End(ctx, "archive", 88, disk),
		s.pass(ctx, 47*time.Minute, "mail", "archive"),
		s.deploy(ctx, "v0.9.1"),
		s.Add(ctx, "mail", "send_welcome", 9, nil),
		s.Add(ctx, "payments", "charge_card", 1204, func(i int, in *storage.Insert) {
			if i%50 == 0 {
				in.Partition = customers[i/50%len(customers)]
			}
		}),
		s.pause(ctx, "payments"),
		s.Schedule(ctx, "mail", "daily_digest", "cron 0 2 * * *", "", -30*time.Minute, true),
		s.End(ctx, "default", 10, nil),
		s.Add(ctx, "default", "legacy_sync", 1, nil),
		s.End(ctx, "default", 1, func(_ int, _ storage.Task, st *storage.Settle) { st.Outcome = storage.Decline }),
		s.pass(ctx, 4*time.Minute, "default"),
	)
	if err != nil {
		return err
	}
	for i := range s.Runners {
		s.Runners[i].Queues = append([]string{"archive"}, s.Runners[i].Queues...)
	}
	return nil
}

// deploy changes the version of the last runner.
func (s *Scene) deploy(ctx context.Context, version string) error {
	s.Runners[len(s.Runners)-1].Version = version
	return s.Beat(ctx)
}

// pause pauses a queue with an entry in the audit log, as a person does.
func (s *Scene) pause(ctx context.Context, queue string) error {
	action, err := ledger.NewAudit(s.Store).Begin(ctx, ledger.Entry{
		Who: "bo", Role: "operator", Via: "dashboard", Action: "pause", Queue: queue,
	})
	if err != nil {
		return err
	}
	err = s.Session.Configure(ctx, queue, storage.Settings{Pause: &storage.Pause{On: true}})
	return errors.Join(err, action.End(ctx, ledger.Ending{Count: 1, Err: err}))
}

// hour adds an hour of work, with an entry in the history for each minute.
func (s *Scene) hour(ctx context.Context) error {
	for minute := range 61 {
		err := s.minute(ctx, minute)
		*s.clock += time.Minute
		if _, werr := s.history.Write(ctx); errors.Join(err, werr) != nil {
			return errors.Join(err, werr)
		}
	}
	return nil
}

// minute adds the work of a minute of an ordinary day.
func (s *Scene) minute(ctx context.Context, minute int) error {
	some := 40 + 25*((minute*minute)%7) + minute%5*8
	return errors.Join(
		s.Add(ctx, "images", "resize_image", 3*some, nil), s.End(ctx, "images", 3*some, nil),
		s.Add(ctx, "webhooks", "deliver_webhook", some, nil),
		s.End(ctx, "webhooks", some, func(i int, _ storage.Task, st *storage.Settle) {
			if minute%9 == 4 && i%6 == 0 {
				st.Outcome, st.Error = storage.Fail, "the hook answers 502 Bad Gateway"
			}
		}),
		s.End(ctx, "webhooks", some, nil),
	)
}

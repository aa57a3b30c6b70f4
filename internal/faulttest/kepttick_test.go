//go:build unix

package faulttest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// keptTick is the job of the kept schedules. Version names the SetSchedule that made it.
type keptTick struct{ Version string }

// Options keeps ticks, so that they can be counted.
func (keptTick) Options() midge.Options { return tick{}.Options() }

const (
	keptQueue = "kept"
	keptNames = 8
)

// keptSchedules changes kept schedules at random while processes tick them, and notes when none of their ticks may
// be made.
type keptSchedules struct {
	*fleet
	random *rand.Rand
	queue  *midge.Queue
	now    map[string]*keptVersion // by name; nil if there is none
	all    map[string]*keptVersion // by version
}

// keptVersion is a schedule from its SetSchedule to its replacement or removal.
type keptVersion struct {
	period time.Duration
	paused bool
	quiet  []quietTime
}

// quietTime is a time in which no tick may be made: from the acknowledgement of a pause or of the end, to the call that
// resumes the schedule; zero for no such call.
type quietTime struct{ from, to time.Time }

func newKeptSchedules(f *fleet, random *rand.Rand) *keptSchedules {
	return &keptSchedules{
		fleet: f, random: random, queue: f.client.Queue(keptQueue),
		now: make(map[string]*keptVersion), all: make(map[string]*keptVersion),
	}
}

// change makes a change of one schedule, often at the moment of a tick.
func (k *keptSchedules) change() {
	k.t.Helper()
	name := fmt.Sprint("s", k.random.IntN(keptNames))
	v := k.now[name]
	if v != nil && !v.paused {
		k.awaitTick(name)
	}
	switch do := k.random.IntN(6); {
	case v == nil || do < 2:
		k.set(name, v)
	case do == 2:
		must(k.t, k.queue.RemoveSchedule(k.t.Context(), name))
		v.quiet, k.now[name] = append(v.quiet, quietTime{from: time.Now()}), nil
	case v.paused:
		k.resume(name, v)
	default:
		must(k.t, k.queue.PauseSchedule(k.t.Context(), name))
		v.paused, v.quiet = true, append(v.quiet, quietTime{from: time.Now()})
	}
}

// awaitTick waits for the next tick of a schedule if it is near, or for a moment shortly before or after it.
func (k *keptSchedules) awaitTick(name string) {
	k.t.Helper()
	cursor, err := k.store.Task(k.t.Context(), storage.Ref{Queue: keptQueue, ID: storage.CursorPrefix + name})
	must(k.t, err)
	around := time.Duration(k.random.IntN(30)-10) * time.Millisecond
	if wait := time.Until(cursor.Cursor.Next) + around; wait < time.Second/2 {
		<-time.NewTimer(wait).C
	}
}

// set sets a new version of a schedule, which is paused if the former one was.
func (k *keptSchedules) set(name string, former *keptVersion) {
	k.t.Helper()
	version := fmt.Sprint(name, " ", len(k.all))
	v := &keptVersion{period: time.Duration(1+k.random.IntN(2)) * time.Second}
	if former != nil && former.paused {
		v.paused, v.quiet = true, []quietTime{{}}
	}
	k.now[name], k.all[version] = v, v
	must(k.t, k.queue.SetSchedule(k.t.Context(), name, midge.Every(v.period), keptTick{version},
		midge.Jitter(2*time.Second), midge.AllMissed(0)))
	if former != nil {
		former.quiet = append(former.quiet, quietTime{from: time.Now()})
	}
}

func (k *keptSchedules) resume(name string, v *keptVersion) {
	k.t.Helper()
	v.quiet[len(v.quiet)-1].to, v.paused = time.Now(), false
	must(k.t, k.queue.ResumeSchedule(k.t.Context(), name))
}

// settle resumes all schedules, and waits until each has ticked from now on.
func (k *keptSchedules) settle() {
	k.t.Helper()
	for name, v := range k.now {
		if v != nil && v.paused {
			k.resume(name, v)
		}
	}
	since := time.Now()
	standing := ""
	if !poll(30*time.Second, func() bool {
		list, err := k.queue.Schedules(k.t.Context())
		must(k.t, err)
		i := slices.IndexFunc(list, func(s midge.ScheduleInfo) bool { return !s.Cursor.Last.After(since) })
		if i >= 0 {
			standing = fmt.Sprintf("%s, last at %v, due at %v", list[i].Name, clock(list[i].Cursor.Last), clock(list[i].Due))
		}
		return i < 0
	}) {
		k.t.Errorf("a kept schedule stands still: %s", standing)
	}
}

// check checks that each tick was made once, and in no quiet time. It returns the number of ticks.
func (k *keptSchedules) check(tasks map[string]storage.Task) (ticks int) {
	k.t.Helper()
	made := make(map[string][]storage.Task)
	for _, task := range tasks {
		if task.State != storage.Cursors {
			var job keptTick
			must(k.t, midge.Decode(task, &job))
			made[job.Version] = append(made[job.Version], task)
			ticks++
		}
	}
	for version, list := range made {
		for _, fault := range k.all[version].faults(list) {
			k.t.Errorf("%s: %s", version, fault)
		}
	}
	return ticks
}

// faults returns the ticks of a version that were made twice, left out, or made in a quiet time.
func (v *keptVersion) faults(made []storage.Task) (faults []string) {
	slices.SortFunc(made, func(a, b storage.Task) int { return a.Tick().Compare(b.Tick()) })
	for i, task := range made {
		for _, q := range v.quiet {
			if task.Created.After(q.from.Add(slack)) && (q.to.IsZero() || task.Created.Before(q.to.Add(-slack))) {
				faults = append(faults, fmt.Sprintf("the tick of %v was made at %v, want none from %v to %v",
					clock(task.Tick()), clock(task.Created), clock(q.from), clock(q.to)))
			}
		}
		if i == 0 {
			continue
		}
		before := made[i-1]
		paused := slices.ContainsFunc(v.quiet, func(q quietTime) bool {
			return q.from.After(before.Created.Add(-slack)) && !q.to.IsZero() && q.to.Before(task.Created.Add(slack))
		})
		if gap := task.Tick().Sub(before.Tick()); gap != v.period && (!paused || gap <= 0 || gap%v.period != 0) {
			faults = append(faults, fmt.Sprintf("every %v: the tick of %v, made at %v, follows that of %v, made at %v",
				v.period, clock(task.Tick()), clock(task.Created), clock(before.Tick()), clock(before.Created)))
		}
	}
	return faults
}

// TestTheCheckerSeesFaultyKeptTicks checks that the check finds each kind of violation.
func TestTheCheckerSeesFaultyKeptTicks(t *testing.T) {
	begin := time.Now()
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	v := keptVersion{period: time.Second, quiet: []quietTime{{at(2.5), at(5.5)}, {from: at(8.5)}}}
	for _, c := range []struct {
		ticks []float64
		late  float64 // of the last one
		want  string  // part of the reported violation, "" for none
	}{
		{[]float64{1, 2, 6, 7, 8}, 0.1, ""},
		{[]float64{1, 2, 3}, 0, "want none"},
		{[]float64{1, 2, 6, 7, 8, 9}, 0, "want none"},
		{[]float64{1, 2, 6, 7, 8}, 0.6, "want none"},
		{[]float64{1, 2, 2}, 0, "follows"},
		{[]float64{6, 8}, 0, "follows"},
		{[]float64{1, 2, 6.5}, 0, "follows"},
	} {
		var made []storage.Task
		for _, tick := range c.ticks {
			headers := map[string]string{storage.TickHeader: at(tick).Format(time.RFC3339Nano)}
			made = append(made, storage.Task{Headers: headers, Created: at(tick)})
		}
		last := &made[len(made)-1]
		last.Created = last.Created.Add(time.Duration(c.late * float64(time.Second)))
		got := strings.Join(v.faults(made), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("ticks at %v: the check reports %q, want %q", c.ticks, got, c.want)
		}
	}
}

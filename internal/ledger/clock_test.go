package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// actions begins n actions.
func (w *world) actions(a *Audit, n int) {
	w.Helper()
	for i := range n {
		if _, err := a.Begin(w.Context(), Entry{Who: []string{"ann", "bo", "cy"}[i%3], Action: "pause"}); err != nil {
			w.Fatal(err)
		}
	}
}

// records returns how many records a queue has.
func (w *world) records(queue string) int64 {
	w.Helper()
	stats, err := w.Storage.Stats(w.Context(), queue)
	if err != nil {
		w.Fatal(err)
	}
	return stats[0].Live()
}

// TestAShortJumpDeletesNothing sets the clock a hundred days ahead for a few minutes. Pages and actions must
// stay, both with a process that sees the jump and with a process that begins during the jump. A jump that
// lasts is believed.
func TestAShortJumpDeletesNothing(t *testing.T) {
	const jump = 100 * 24 * time.Hour
	for _, begins := range []bool{false, true} {
		w := newWorld(t)
		l, a := New(w), NewAudit(w.Storage)
		w.actions(a, 3)
		one := func() { w.queue("mail").Totals.Enqueued++ }
		w.write(l)
		w.minutes(l, 180, one)
		pages := w.records(Queue)
		w.pass(jump)
		if begins {
			l = New(w)
		}
		w.minutes(l, 3, one)
		w.actions(a, 2*trimEach) // some of these actions trim the audit
		w.pass(-jump)
		w.want("actions", w.records(AuditQueue), 3+2*trimEach)
		if n := w.records(Queue); n < pages {
			t.Errorf("%d pages of %d are left", n, pages)
		}
		w.minutes(l, 10, one)
		s := w.read(noon, w.now, time.Minute)
		w.want("enqueued", enqueued(s.All), 180+10)
		w.pass(jump)
		w.writeSteady(l)
		w.want("actions behind a jump that stays", w.records(AuditQueue), 2*trimEach)
	}
}

// TestAnActionThatBeginsDuringAJumpDeletesNothing has processes of one action each, such as commands, that
// begin while the clock is a hundred days ahead. None of them has seen the clock before the jump.
func TestAnActionThatBeginsDuringAJumpDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.actions(NewAudit(w.Storage), 3)
	w.pass(ActionsKept + 10*24*time.Hour)
	for range trimFrom - 1 {
		a := NewAudit(w.Storage)
		a.begun.Store(trimEach - 1) // the action trims the audit
		w.actions(a, 1)
	}
	w.want("actions", w.records(AuditQueue), 3+trimFrom-1)
	a := NewAudit(w.Storage)
	a.begun.Store(trimEach - 1)
	w.actions(a, 1)
	w.want("actions behind a jump that many actions confirm", w.records(AuditQueue), trimFrom)
}

// TestTheHoursBehindAJumpAreGathered sets the clock ahead for a while. The hours that were gathered before
// their time must be replaced by their real figures later, whichever process writes then.
func TestTheHoursBehindAJumpAreGathered(t *testing.T) {
	for _, ahead := range []time.Duration{40 * time.Minute, 3 * time.Hour, 30 * time.Hour} {
		for _, minutes := range []int{1, 15} {
			for _, begins := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v for %d minutes, another process: %v", ahead, minutes, begins), func(t *testing.T) {
					hoursBehindAJump(newWorld(t), ahead, minutes, begins)
				})
			}
		}
	}
}

// hoursBehindAJump enqueues one task a minute, and sets the clock ahead for some minutes.
func hoursBehindAJump(w *world, ahead time.Duration, minutes int, begins bool) {
	l := New(w)
	w.write(l)
	one := func() { w.queue("mail").Totals.Enqueued++ }
	w.minutes(l, 90, one)
	w.pass(ahead)
	w.minutes(l, minutes, one)
	w.pass(-ahead - time.Duration(minutes)*time.Minute)
	if begins {
		l = New(w)
	}
	w.minutes(l, 10, one)
	// The tasks that were enqueued during the jump count, at least in part, at the time that the clock showed.
	if got := enqueued(w.read(noon, w.now, time.Hour).All); got < 100 || got > int64(100+minutes) {
		w.Errorf("%d were enqueued by hours, want 100 or a few more", got)
	}
	w.minutes(l, 72*60, one)
	for range 7 * 24 { // until the minutes of the jump have expired
		w.pass(time.Hour)
		w.write(l)
	}
	s := w.read(noon, noon.Add(72*time.Hour), time.Hour)
	for i, p := range s.All {
		most := int64(15)
		if minutes > 1 {
			most = 75 // the hour that the clock showed while it was ahead
		}
		if off := max(p.Enqueued-60, 60-p.Enqueued); !p.Known || i > 1 && off > most { // the jump is in hour 1
			w.Errorf("hour %d is %+v, want about 60", i, p)
		}
	}
	if got := enqueued(s.All); got < 72*60-90 || got > 72*60+90 {
		w.Errorf("%d were enqueued in 72 hours, want about %d", got, 72*60)
	}
}

// TestAClockThatWasBehindLosesNoHour sets the clock back for two hours, in which hours end that were gathered
// before.
func TestAClockThatWasBehindLosesNoHour(t *testing.T) {
	for _, behind := range []time.Duration{5 * time.Hour, 30 * time.Hour} {
		w := newWorld(t)
		l := New(w)
		w.write(l)
		one := func() { w.queue("mail").Totals.Enqueued++ }
		w.minutes(l, 48*60, one)
		w.pass(-behind)
		w.minutes(l, 120, one)
		w.pass(behind)
		w.minutes(l, 120, one)
		s := w.read(noon, w.now, time.Hour)
		w.want("enqueued, by hours", enqueued(s.All), (48+2+2)*60)
		for i, p := range s.All {
			if !p.Known {
				t.Errorf("hour %d is not known", i)
			}
		}
	}
}

// TestSpansFarAway checks that a span of years reads only the pages that may exist, and that a span in the
// future is empty.
func TestSpansFarAway(t *testing.T) {
	w := newWorld(t)
	l := New(w)
	w.write(l)
	w.minutes(l, 120, func() { w.queue("mail").Totals.Enqueued++ })
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		from, to time.Time
		want     int64
	}{{year(1970), year(3000), 120}, {year(1970), year(2000), 0}, {year(9000), year(9999), 0}} {
		w.reads = 0
		s := w.read(c.from, c.to, HoursKept)
		w.want("enqueued from "+c.from.String(), enqueued(s.All), c.want)
		if w.reads > 2000 {
			t.Errorf("%d pages are read from %v to %v", w.reads, c.from, c.to)
		}
	}
}

// TestAnActionByAClockFarAheadIsListed checks that such an action is listed, and that all other actions are
// listed, too.
func TestAnActionByAClockFarAheadIsListed(t *testing.T) {
	w := newWorld(t)
	w.actions(NewAudit(w.Storage), 1)
	const ahead = 140 * 365 * 24 * time.Hour
	w.pass(ahead)
	w.actions(NewAudit(w.Storage), 1)
	w.pass(-ahead)
	w.actions(NewAudit(w.Storage), 1)
	actions, _, err := NewAudit(w.Storage).List(t.Context(), "", 0)
	if err != nil || len(actions) != 3 {
		t.Errorf("%d actions of 3 are listed, %v", len(actions), err)
	}
	var due []time.Time
	for action, err := range storage.Each(t.Context(), w.Storage, AuditQueue, storage.Scheduled) {
		if err != nil {
			t.Fatal(err)
		}
		due = append(due, action.Due)
	}
	w.want("records that are never due", len(due), 3)
}

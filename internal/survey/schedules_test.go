package survey

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// calendar is a storage with schedules, and counts the pages of tasks that are read.
type calendar struct {
	storage.Storage
	*testing.T

	session *storage.Session
	pages   atomic.Int64
}

func newCalendar(t *testing.T) *calendar {
	inner, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inner.Close() })
	return &calendar{Storage: inner, T: t, session: storage.NewSession(inner, 0)}
}

func (c *calendar) Tasks(ctx context.Context, q storage.TasksQuery) (storage.TasksPage, error) {
	c.pages.Add(1)
	return c.Storage.Tasks(ctx, q)
}

// add adds n schedules of a kind that are kept in a queue, after the schedules that it has.
func (c *calendar) add(queue, kind string, n int, next time.Time, declaration string) {
	c.Helper()
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i].Inserts = []storage.Insert{{
			Ref:  storage.Ref{Queue: queue, ID: fmt.Sprintf("%s%s-%d", storage.CursorPrefix, kind, i)},
			Kind: kind, Encoding: "json", Payload: []byte("{}"), CrashLimit: 1,
			Cursor: &storage.Cursor{Next: next, Declaration: declaration},
		}}
	}
	for chunk := range slices.Chunk(txs, storage.MaxPage) {
		applied, err := c.session.Apply(c.Context(), chunk...)
		if err != nil {
			c.Fatal(err)
		}
		for _, a := range applied {
			if a.Err != nil {
				c.Fatal(a.Err)
			}
		}
	}
}

// runs registers a runner that serves queues and declares schedules.
func (c *calendar) runs(queues []string, schedules ...storage.Declared) {
	c.Helper()
	_, err := c.session.Extend(c.Context(), storage.ExtendRequest{Runner: storage.RunnerInfo{
		ID: "r", Queues: queues, Kinds: []string{"bill"}, Schedules: schedules, For: time.Hour,
	}})
	if err != nil {
		c.Fatal(err)
	}
}

// codes returns the codes of the findings that are not accepted, each with its queue and text.
func codes(s *Survey, accepted ...string) (all []string) {
	found, _ := s.Findings(Bounds{Dead: AnyNumber, Accepted: accepted}, Words{})
	for _, f := range found {
		all = append(all, f.Code+" "+f.Queue+" "+f.Text)
	}
	return all
}

// TestAScheduleBehindManyOthersIsJudged has more schedules that tick than a reading keeps, and behind them a
// damaged schedule, and an orphaned one in another queue. A report finds both. A reading that is repeated
// finds the second, and reports how many schedules it leaves out.
func TestAScheduleBehindManyOthersIsJudged(t *testing.T) {
	c := newCalendar(t)
	d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h", Kept: true}
	const left = 500
	c.add("customers", "bill", maxSchedules+left-1, time.Now().Add(time.Hour), d.Encode())
	c.add("customers", "broken", 1, time.Time{}, "{}")
	c.add("reports", "sum", 1, time.Now().Add(time.Hour), d.Encode())
	c.runs([]string{"customers", "reports"})

	once, err := Once(t.Context(), c, Bounds{Dead: AnyNumber})
	if err != nil {
		t.Fatal(err)
	}
	const orphaned = "orphaned reports The schedule sum-0 is orphaned"
	want := []string{orphaned, "damaged-schedule customers The schedule broken-0 is damaged"}
	if got := codes(once); !slices.Equal(got, want) {
		t.Errorf("a report finds %q, want %q", got, want)
	}
	if n := len(once.Schedules); n != maxSchedules+2 {
		t.Errorf("a report keeps %d schedules, want %d and those with a finding", n, maxSchedules)
	}

	again, err := NewReader(c, Config{}).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want = []string{orphaned, "unread-schedules customers The findings leave out 500 schedules of customers"}
	if got := codes(again); !slices.Equal(got, want) {
		t.Errorf("a reading finds %q, want %q", got, want)
	}
	if got := codes(again, "unread-schedules:customers"); !slices.Equal(got, want[:1]) {
		t.Errorf("with the notice accepted a reading finds %q, want %q", got, want[:1])
	}
}

// TestManyOrphanedSchedulesAreBounded counts schedules that do not tick, of which a report keeps a bounded number.
func TestManyOrphanedSchedulesAreBounded(t *testing.T) {
	c := newCalendar(t)
	d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h", Kept: true}
	c.add("customers", "sum", 2*maxSchedules+3, time.Now().Add(time.Hour), d.Encode())
	c.runs([]string{"customers"})
	once, err := Once(t.Context(), c, Bounds{Dead: AnyNumber})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("orphaned customers %d schedules of the kind sum are orphaned", 2*maxSchedules),
		"unread-schedules customers The findings leave out 3 schedules of customers",
	}
	if got := codes(once); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestManyDeclaredSchedulesAreNotReadAgainAndAgain has more schedules of a program than a reading keeps. They are
// read once, and not with each reading of the runners.
func TestManyDeclaredSchedulesAreNotReadAgainAndAgain(t *testing.T) {
	c := newCalendar(t)
	d := storage.Declaration{Spec: "every 1h0m0s", CatchUp: "one", Hash: "h"}
	c.add("customers", "bill", maxSchedules+1, time.Now().Add(time.Hour), d.Encode())
	var declared []storage.Declared
	for s, err := range storage.Each(t.Context(), c.Storage, "customers", storage.Cursors) {
		if err != nil {
			t.Fatal(err)
		}
		declared = append(declared, storage.Declared{Ref: s.Ref, Hash: "h"})
	}
	c.runs([]string{"customers"}, declared...)
	began, ahead := time.Now(), time.Duration(0)
	r := NewReader(c, Config{Now: func() time.Time { return began.Add(ahead) }})
	for range 3 {
		if _, err := r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		ahead += runnersFor
	}
	if n, most := c.pages.Load(), int64(maxSchedules/storage.MaxPage+1); n > most {
		t.Errorf("three readings read %d pages of schedules, want at most %d", n, most)
	}
}

package cli

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// told matches the commands that doctor suggests as next.
var told = regexp.MustCompile(`(?m)^ *next: (?:deploy its program, or )?midge (.+)$`)

// TestANightIsRepairedInTenCommands runs only the commands that doctor suggests. docs/operating.md
// describes the same steps.
func TestANightIsRepairedInTenCommands(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		s, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		r.store, r.session, r.person = unclosed{s.Store}, s.Session, true
		before := r.run("doctor")
		next := told.FindAllStringSubmatch(before.out, -1)
		stop := r.mended(s, "mail", "archive")
		for _, line := range next {
			r.in = "y\n"
			r.ok(line[1]) // at its rate, in virtual time
		}
		stop()
		if commands := len(next) + 2; commands > 10 {
			t.Errorf("the night took %d commands, want at most 10", commands)
		}
		for _, queue := range []string{"mail", "archive", "payments"} { // as the runners of these queues do
			if err := s.End(t.Context(), queue, 2000, nil); err != nil {
				t.Fatal(err)
			}
		}
		if after := r.ok("doctor"); told.MatchString(after) {
			t.Errorf("doctor said\n%s\nand after all that:\n%s", before.out, after)
		}
		stats, err := r.store.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range stats {
			if q.Dead > 0 || q.Paused || q.Waiting > 0 {
				t.Errorf("%s: %d dead, %d waiting, paused %t; want none, none and false", q.Queue, q.Dead, q.Waiting, q.Paused)
			}
		}
		orphan := storage.Ref{Queue: "mail", ID: storage.CursorPrefix + "daily_digest"}
		if task, err := r.store.Task(t.Context(), orphan); err == nil {
			t.Errorf("the orphaned schedule is there: %+v", task.Ref)
		}
	})
}

// mended completes the tasks of queues each second, as the runners do once the causes of death are gone, until stop
// is called.
func (r *rig) mended(s *scene.Scene, queues ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for sleep.For(ctx, time.Second) {
			for _, queue := range queues {
				if err := s.End(ctx, queue, 2000, nil); err != nil && ctx.Err() == nil {
					r.t.Error(err)
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}

package postgres

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// TestAWaitSurvivesTheEndOfItsQueue: the row of a queue that was not used for long is deleted while
// somebody waits for it, and another process makes the queue anew, under another number.
func TestAWaitSurvivesTheEndOfItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Storage{numbers: newNumbers(), wake: new(wake)}
		s.wake.name = s.numbers.name
		s.numbers.named = func(name string) { s.wake.events.Ring(wakeup.Alert, name) }
		s.numbers.learn("mail", 5)
		woken := make(chan error, 1)
		wait := func() {
			req := storage.WaitRequest{Queues: []string{"mail"}, Since: s.wake.events.Since()}
			go func() { woken <- s.Wait(t.Context(), req) }()
			synctest.Wait()
		}
		wait()
		s.numbers.hear("mail", 0)
		if synctest.Wait(); len(woken) > 0 { // the Wait begins anew
			if err := <-woken; err != nil {
				t.Fatal(err)
			}
			wait()
		}
		s.wake.ring([]int32{6}, wakeup.Work)
		if synctest.Wait(); len(woken) == 0 {
			t.Error("the wake-up of a new number woke nobody, want those who wait for any")
		}
		s.wake.close()
	})
}

// TestAStepThatTakesItsOwnMarkWakesAnother process, if nobody has room for its task here.
func TestAStepThatTakesItsOwnMarkWakesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := 0
		w := &wake{own: "own", channel: "all", sender: "me", name: func(int32) string { return "mail" }}
		w.events.Elsewhere = func(string) { passed++ }
		woken := make(chan error, 1)
		go func() {
			req := storage.WaitRequest{Queues: []string{"mail"}, Since: w.events.Since(), CancelsOnly: true}
			woken <- w.events.Wait(t.Context(), req)
		}()
		synctest.Wait()
		for channel, want := range map[string]int{"all": 0, "own": 1} {
			passed = 0
			w.caused([]int32{5}, wakeup.Work)
			w.note(channel, "me w 5")
			time.Sleep(time.Second) // virtual
			if synctest.Wait(); passed != want {
				t.Errorf("a notification of its own on the channel %s: passed on %d times, want %d", channel, passed, want)
			}
			w.events.Looking(&storage.ClaimRequest{Queues: []storage.ClaimQueue{{Name: "mail"}}, Start: 1})
		}
		w.close()
		if err := <-woken; err == nil {
			t.Error("a Wait on closed events returned no error")
		}
	})
}

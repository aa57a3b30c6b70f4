package postgres

import (
	"testing"
	"testing/synctest"

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

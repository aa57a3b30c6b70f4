package runner

import "testing"

// TestATaskIsSettledByItsTransactionOrByARelease checks that never both settle it, whichever comes
// first.
func TestATaskIsSettledByItsTransactionOrByARelease(t *testing.T) {
	for range 1000 {
		a := &Attempt{batch: &batch{ctx: t.Context()}, phase: runs, ran: true}
		released, begun := make(chan bool), make(chan struct{})
		go func() {
			<-begun
			released <- a.settles()
		}()
		close(begun)
		_, _, err := a.join()
		if joined, back := err == nil, <-released; joined == back {
			t.Fatalf("handed to its transaction: %v, %v; given back: %v; want one of both", joined, err, back)
		}
	}
}

package access

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/sleep"
)

// pauses makes the answer to a wrong name take as long as that to a wrong password, so that its time does not
// show which names exist. It keeps how long the last passwords took, with their wait for a processor.
type pauses struct {
	once sync.Once

	mu   sync.Mutex // guards last
	last []time.Duration
}

// mostPauses is how many times are kept.
const mostPauses = 32

// add keeps the time that a password took.
func (p *pauses) add(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.last) < mostPauses {
		p.last = append(p.last, took)
		return
	}
	p.last[rand.IntN(mostPauses)] = took
}

// pause waits for one of the kept times, chosen at random. The first call also hashes a password, once, so
// that there is such a time. pause returns the cause of ctx if ctx ends before.
func (p *pauses) pause(ctx context.Context, rounds int) error {
	p.once.Do(func() {
		begun := time.Now()
		hashed{rounds: rounds, salt: make([]byte, 16)}.is("")
		p.add(time.Since(begun))
	})
	p.mu.Lock()
	wait := p.last[rand.IntN(len(p.last))]
	p.mu.Unlock()
	if !sleep.For(ctx, wait) {
		return context.Cause(ctx)
	}
	return nil
}

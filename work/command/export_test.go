package command

import "time"

// AnswersWithin sets the time after which a reaper that does not read is killed.
func (r *Reaper) AnswersWithin(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.within = d
}

package command

import "time"

// AnswersWithin sets the time after which a reaper that does not read is killed.
func (r *Reaper) AnswersWithin(d time.Duration) { r.within = d }

package midge

import "time"

// SkewWallClock sets a function that is added to r's wall clock but not to its monotonic clock,
// which is the effect of a suspension of the machine. It is called before Run.
func (r *Runner) SkewWallClock(skew func() time.Duration) { r.actors.SkewWallClock(skew) }

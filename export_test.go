package midge

import "time"

// SkewWallClock has r's wall clock read so much more than the monotonic one tells, as behind a
// suspension of the machine. It is called before Run.
func (r *Runner) SkewWallClock(skew func() time.Duration) { r.actors.SkewWallClock(skew) }

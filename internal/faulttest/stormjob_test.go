//go:build unix

package faulttest

import (
	"time"

	"github.com/midgehq/midge"
)

// stormJob is a stepJob for a storm, in which a task may lose its runner many times. All
// follow-ups are stormJobs.
type stormJob struct{ Steps []step }

// declinedJob is a stormJob of a kind that some runners decline, because they do not know it.
type declinedJob struct{ Steps []step }

// Options returns the options of a stormJob.
func (declinedJob) Options() midge.Options { return stormJob{}.Options() }

// keepForever is longer than any jump of a clock.
const keepForever = 1000 * time.Hour

// Options sets limits so high that no task dies of the faults of the storm.
func (stormJob) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: keepForever}, Retries: 100, CrashLimit: 1000, Timeout: noTimeout}
}

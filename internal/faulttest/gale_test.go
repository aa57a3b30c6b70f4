//go:build unix

package faulttest

import (
	"time"

	"github.com/midgehq/midge"
)

// gale is an act for a storm, in which a task may lose its runner many times. All
// follow-ups are gales.
type gale struct{ Steps []step }

// drift is a gale of a kind that some runners do not know.
type drift struct{ Steps []step }

// Options returns the options of a gale.
func (drift) Options() midge.Options { return gale{}.Options() }

// keepForever is longer than any jump of a clock.
const keepForever = 1000 * time.Hour

// Options sets limits so high that no task dies of the faults of the storm.
func (gale) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: keepForever}, Retries: 100, CrashLimit: 1000, Timeout: noTimeout}
}

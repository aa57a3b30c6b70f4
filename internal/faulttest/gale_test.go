//go:build unix

package faulttest

import (
	"time"

	"github.com/midgehq/midge"
)

// gale is act for a storm, in which any task may lose its runner many times, and what
// all follow-ups are.
type gale struct{ Steps []step }

// drift is a gale of a kind that some runners do not know.
type drift struct{ Steps []step }

// Options are those of a gale.
func (drift) Options() midge.Options { return gale{}.Options() }

// keepForever outlasts all that a clock is moved by.
const keepForever = 1000 * time.Hour

// Options keep a gale from dying of what the storm does to it.
func (gale) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: keepForever}, Retries: 100, CrashLimit: 1000, Timeout: noTimeout}
}

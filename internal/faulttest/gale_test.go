//go:build unix

package faulttest

import (
	"time"

	"github.com/midgehq/midge"
)

// gale is act for a storm, in which any task may lose its runner many times, and what
// all follow-ups are.
type gale struct{ Steps []step }

// Options keep a gale from dying of what the storm does to it.
func (gale) Options() midge.Options {
	return midge.Options{Keep: midge.Keep{For: time.Hour}, MaxRetries: 100, CrashLimit: 1000, Timeout: noTimeout}
}

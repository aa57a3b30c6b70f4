package midge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/schedule"
	"github.com/midgehq/midge/storage"
)

// Options are checked where they are given, before the storage validates the insert that results,
// so that an error names the option that the caller wrote. That name is the parameter what.

// longest is storage.MaxDelay as errors print it.
const longest = "100 years"

// reservedHeaders is the prefix of midge's own headers.
const reservedHeaders = "midge."

// check checks the options of a type, with the defaults filled in.
func (o *Options) check() error {
	for _, err := range []error{
		checkQueue("Options.Queue", o.Queue),
		checkPriority("Options.Priority", o.Priority),
		checkPartition("Options.Partition", o.Partition),
		checkCost(o.Cost),
		checkRange("Options.Retries", o.Retries, 0, storage.MaxLimit, ", or None; 0 means the default"),
		checkRange("Options.CrashLimit", o.CrashLimit, 1, storage.MaxLimit, ", or 0 for the default"),
		checkSpan("Options.Timeout", o.Timeout, "0 for the runner's"),
		checkSpan("Options.Keep.For", o.Keep.For, "0"),
		codec.CheckEncoding("Options.Encoding", string(o.Encoding)),
	} {
		if err != nil {
			return err
		}
	}
	for name := range o.Headers {
		if err := checkHeader("name in Options.Headers", name); err != nil {
			return err
		}
	}
	return nil
}

// checkQueue checks the name of a queue to which an application enqueues, or that it serves or
// changes.
func checkQueue(what, name string) error {
	if storage.Reserved(name) {
		return storage.Invalid(what, name,
			"one that does not begin with %q, as midge's own do", storage.ReservedQueues)
	}
	return storage.CheckName(what, name)
}

// checkRef checks the ref of a task that an application changes.
func checkRef(ref Ref) error {
	if err := checkQueue("queue name", ref.Queue); err != nil {
		return err
	}
	return storage.CheckRef(ref)
}

func checkPriority(what string, n int) error {
	return checkRange(what, n, -storage.MaxPriority, storage.MaxPriority, "")
}

// checkPartition checks the key of a partition, "" for none.
func checkPartition(what, key string) error {
	if key == "" {
		return nil
	}
	err := storage.CheckPartition(key)
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		invalid.What = what
	}
	return err
}

// checkCost checks the cost in Options.
func checkCost(n int) error {
	if n == None {
		return nil
	}
	return checkRange("Options.Cost", n, 0, storage.MaxCost, ", or None for 0; 0 means the default, 1")
}

// checkRange refuses a number out of bounds. hint is appended to the wanted range.
func checkRange(what string, n, low, high int, hint string) error {
	if n < low || n > high {
		return storage.Invalid(what, n, "%d to %d%s", low, high, hint)
	}
	return nil
}

func checkDuration(what string, d time.Duration) error {
	if d < 0 || d > storage.MaxDelay {
		return storage.Invalid(what, d, "0 to "+longest)
	}
	return nil
}

// checkSpan checks a duration that may be 0 with a special meaning, which zero names. It refuses
// durations below storage.MinSpan, because 30 instead of 30 * time.Second is 30 ns.
func checkSpan(what string, d time.Duration, zero string) error {
	if d != 0 && (d < storage.MinSpan || d > storage.MaxDelay) {
		return storage.Invalid(what, d, "%s, or %v to "+longest, zero, storage.MinSpan)
	}
	return nil
}

// checkDurationOrNone checks a duration whose 0 means the default.
func checkDurationOrNone(what string, d time.Duration) error {
	if d != None && (d < 0 || d > storage.MaxDelay) {
		return storage.Invalid(what, d, "0 to "+longest+", or None; 0 means the default")
	}
	return nil
}

func checkMoment(what string, t time.Time) error {
	switch {
	case t.IsZero():
		return storage.Invalid(what, "zero time", "a moment; one that has passed is due now")
	case t.UTC().Year() >= schedule.LastYear:
		return storage.Invalid(what, t.Round(0), "a moment before the year %d", schedule.LastYear)
	}
	return nil
}

func checkID(id string) error {
	if strings.HasPrefix(id, storage.CursorPrefix) {
		return storage.Invalid("ID", id, "one that does not begin with %q, as schedules do", storage.CursorPrefix)
	}
	return storage.CheckName("ID", id)
}

func checkHeader(what, name string) error {
	switch {
	case name == "":
		return storage.Invalid(what, name, "at least one character")
	case strings.HasPrefix(name, reservedHeaders):
		return storage.Invalid(what, name, "one that does not begin with %q, as midge's own do", reservedHeaders)
	}
	return nil
}

// checkQueues checks queues and their weights. what and whatWeights name them in errors.
func checkQueues(what string, queues []string, whatWeights string, weights map[string]int) error {
	if len(queues) > storage.MaxNames {
		return storage.Invalid(what, fmt.Sprintf("%d of them", len(queues)), "at most %d", storage.MaxNames)
	}
	seen := make(map[string]bool, len(queues))
	for _, q := range queues {
		if err := checkQueue("name in "+what, q); err != nil {
			return err
		}
		if seen[q] {
			return storage.Invalid(what, q+" twice", "each queue once")
		}
		seen[q] = true
	}
	for _, q := range slices.Sorted(maps.Keys(weights)) {
		if !seen[q] {
			return storage.Invalid(whatWeights, q, "queues that are served, see %s", what)
		}
		if err := checkRange(fmt.Sprintf("%s[%q]", whatWeights, q), weights[q], 1, mostAtOnce, ""); err != nil {
			return err
		}
	}
	return nil
}

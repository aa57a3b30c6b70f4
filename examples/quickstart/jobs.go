package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge"
)

// queue is the queue of all tasks of this example. The tasks of a type without Options
// go to the queue "default".
const queue = "quickstart"

// SendWelcome is a job: a struct whose exported fields are its parameters and whose
// method Run does the work. Its kind is send_welcome.
type SendWelcome struct {
	User string
}

// Options returns the options of every task of the type, unless a call overrides them.
func (SendWelcome) Options() midge.Options { return midge.Options{Queue: queue} }

// Run completes the task by returning nil.
func (SendWelcome) Run(context.Context) error { return nil }

// ChargeCard fails twice before it succeeds.
type ChargeCard struct {
	Cents int
}

// Options shortens the delay before a retry, which is 2 seconds or more by default.
func (ChargeCard) Options() midge.Options {
	return midge.Options{
		Queue: queue, Backoff: midge.Geometric{First: 400 * time.Millisecond}.Delay,
		Keep: midge.Keep{For: time.Minute},
	}
}

// Run fails by returning an error.
func (ChargeCard) Run(ctx context.Context) error {
	if task, _ := midge.Current(ctx); task.Retries < 2 {
		return errors.New("the bank does not answer")
	}
	return nil
}

// ImportFile soon runs out of retries and becomes dead.
type ImportFile struct {
	Path string
}

// Options allows only one retry.
func (ImportFile) Options() midge.Options {
	return midge.Options{Queue: queue, Retries: 1, Backoff: midge.Constant(300 * time.Millisecond)}
}

// importFile returns the function that runs ImportFile. A closure holds for a job what
// cannot be a parameter, here whether somebody has mended the file.
func importFile(mended *atomic.Bool) func(context.Context, ImportFile) error {
	return func(_ context.Context, job ImportFile) error {
		if !mended.Load() {
			return fmt.Errorf("%s ends in the middle of a line", job.Path)
		}
		return nil
	}
}

// AddUp is a job with a result.
type AddUp struct {
	Numbers []int
}

// Options names the queue.
func (AddUp) Options() midge.Options { return midge.Options{Queue: queue} }

// Run sets a result, which is stored in the same step as the completion.
func (j AddUp) Run(ctx context.Context) error {
	sum := 0
	for _, n := range j.Numbers {
		sum += n
	}
	return midge.SetResult(ctx, sum)
}

// Tick is the job of a schedule.
type Tick struct{}

// Options names the queue.
func (Tick) Options() midge.Options { return midge.Options{Queue: queue} }

// Run does nothing: the runner logs a line for every attempt.
func (Tick) Run(context.Context) error { return nil }

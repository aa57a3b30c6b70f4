package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// watched is a runner's storage that logs outages: the first call that finds the storage away, and
// the first one that finds it back. It also counts the failed Apply calls.
type watched struct {
	storage.Storage
	log    *lifeLog
	away   atomic.Bool
	full   atomic.Bool  // a call was refused because the storage is full, and no extension has succeeded since
	doubts atomic.Int64 // failed Apply calls: the storage may still read their arguments
	unsure atomic.Bool  // the storage could not confirm an Apply call, and none has succeeded since
	closed func()       // called when the storage is found to be closed
}

// Spans forwards to the storage's optional ability.
func (w *watched) Spans(queues ...string) bool { return storage.Spans(w.Storage, queues...) }

// RunnerIDs forwards to the storage's optional ability.
func (w *watched) RunnerIDs(ctx context.Context) ([]string, error) {
	return storage.RunnerIDs(ctx, w.Storage)
}

// Apply forwards to the storage.
func (w *watched) Apply(
	ctx context.Context, call storage.Call, txs ...storage.Tx,
) ([]storage.Applied, error) {
	applied, err := w.Storage.Apply(ctx, call, txs...)
	if err != nil {
		w.doubts.Add(1)
	} else if w.unsure.Load() {
		w.unsure.Store(false)
	}
	w.saw(ctx, err)
	return applied, err
}

// Claim forwards to the storage.
func (w *watched) Claim(ctx context.Context, req storage.ClaimRequest) (storage.Claimed, error) {
	claimed, err := w.Storage.Claim(ctx, req)
	if errors.Is(err, storage.ErrFull) {
		w.full.Store(true)
	}
	w.saw(ctx, err)
	return claimed, err
}

// Extend forwards to the storage.
func (w *watched) Extend(ctx context.Context, req storage.ExtendRequest) (storage.Extended, error) {
	extended, err := w.Storage.Extend(ctx, req)
	if full := errors.Is(err, storage.ErrFull); full || err == nil {
		w.full.Store(full)
	}
	w.saw(ctx, err)
	return extended, err
}

// Wait forwards to the storage.
func (w *watched) Wait(ctx context.Context, req storage.WaitRequest) error {
	err := w.Storage.Wait(ctx, req)
	if errors.Is(err, storage.ErrClosed) {
		w.closed()
	}
	return err
}

// saw logs the beginning and the end of an outage. An expired lane or an ended context means
// nothing about the storage.
func (w *watched) saw(ctx context.Context, err error) {
	switch {
	case err == nil:
		if w.away.Load() && w.away.Swap(false) {
			w.log.back()
		}
	case errors.Is(err, storage.ErrClosed):
		w.closed()
	case answered(err):
		if !w.unsure.Swap(true) {
			w.log.warn("the storage cannot confirm a call: " + brief(err))
		}
	case Unanswered(err) && !errors.Is(err, storage.ErrLaneExpired) && ctx.Err() == nil:
		if !w.away.Swap(true) {
			w.log.gone(err)
		}
	}
}

// answered reports whether the storage answered a call of unknown outcome. The method belongs to the
// *ReplicasError of Redis.
func answered(err error) bool {
	a, ok := errors.AsType[interface {
		error
		Answered() bool
	}](err)
	return ok && a.Answered()
}

// Unanswered reports whether err means that the storage is away: it could not be reached, or did not answer.
func Unanswered(err error) bool {
	return errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable)
}

// warningsScan is how often the storage's warnings are read, ± 20 %.
const warningsScan = 30 * time.Second

// watchWarnings logs warnings of the storage that are new since the last check, until ctx ends.
func (s *shared) watchWarnings(ctx context.Context, last []string) {
	for sleep.For(ctx, jitter(warningsScan)) {
		d, err := s.store.Describe(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.log.trouble("look at the storage", err)
			}
			continue
		}
		for _, w := range d.Warnings {
			if !slices.ContainsFunc(last, func(l string) bool { return sameWarning(l, w) }) {
				s.log.warn(w)
			}
		}
		last = d.Warnings
	}
}

// sameWarning reports whether two warnings differ only in digits, such as those of a time.
func sameWarning(a, b string) bool {
	words := func(text string) string {
		return strings.Map(func(r rune) rune {
			if unicode.IsDigit(r) {
				return -1
			}
			return r
		}, text)
	}
	return words(a) == words(b)
}

package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// checkup examines a storage, once or again and again, and knows since when each finding holds.
type checkup struct {
	app    *app
	bounds survey.Bounds
	lasts  time.Duration            // a finding counts only once it has lasted for so long
	began  map[findingKey]time.Time // when each finding of the last check began, by the clock of this process
}

// findingKey identifies a finding among others, and again in a later check.
type findingKey struct {
	level                             survey.Level
	code, queue, kind, schedule, name string
}

func keyOf(f *survey.Finding) findingKey {
	return findingKey{f.Level, f.Code, f.Queue, f.Kind, f.Schedule, f.Accept}
}

// sinceIt are the codes of the findings whose Since is when they began. The Since of others is when their
// cause began: a task that waits for too long joined the line before that.
var sinceIt = []string{"full", "orphaned", "unknown-kind", "undecodable", "unstopped", "cause"}

// examine examines the storage, which it opens first. A finding that has not lasted for long enough goes to
// Report.Recent. A storage that refuses the check is a finding. So is a storage that cannot be reached, and
// then examine also returns the error.
func (c *checkup) examine(ctx context.Context, now time.Time) (*Report, error) {
	r, err := c.app.openAndExamine(ctx, c.bounds)
	switch {
	case errors.Is(err, storage.ErrRefused):
		r, err = reportOf(survey.Refused(err)), nil
	case err != nil && unavailable(err):
		r = reportOf(noAnswer)
	case err != nil:
		return nil, err
	}
	before := c.began
	c.split(r, now)
	if err != nil { // the other findings may still hold
		for key, began := range before {
			if _, ok := c.began[key]; !ok {
				c.began[key] = began
			}
		}
	}
	return r, err
}

// openAndExamine opens the storage and examines it.
func (a *app) openAndExamine(ctx context.Context, bounds survey.Bounds) (*Report, error) {
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	return a.examine(ctx, bounds)
}

// noAnswer is the finding that the storage cannot be reached.
var noAnswer = survey.Finding{
	Level: survey.Problem, Code: "unreachable", Text: "The storage cannot be reached",
	Kinds: map[string]int64{},
}

func unavailable(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown)
}

// reportOf returns the report on a storage that cannot be examined.
func reportOf(f survey.Finding) *Report {
	none := []survey.Finding{}
	return &Report{Findings: []survey.Finding{f}, Accepted: none, Recent: none, Now: time.Now().UTC()}
}

// split moves the findings of a report that have not lasted for long enough to Report.Recent.
func (c *checkup) split(r *Report, now time.Time) {
	present := make(map[findingKey]time.Time, len(r.Findings))
	lasted := []survey.Finding{}
	for _, f := range r.Findings {
		key := keyOf(&f)
		began, known := c.began[key]
		if !known {
			if began = now; f.Since != nil && slices.Contains(sinceIt, f.Code) {
				began = now.Add(-max(r.Now.Sub(*f.Since), 0))
			}
		}
		if present[key] = began; now.Sub(began) < c.lasts {
			r.Recent = append(r.Recent, f)
		} else {
			lasted = append(lasted, f)
		}
	}
	r.Findings, c.began = lasted, present
}

// settled examines the storage until each problem has lasted for long enough or is over.
func (c *checkup) settled(ctx context.Context) (*Report, error) {
	end := time.Now().Add(c.lasts)
	every := max(min(c.lasts/10, 10*time.Second), leastWatch)
	for {
		now := time.Now()
		r, err := c.examine(ctx, now)
		open := err == nil && problems(r.Recent) > 0 || err != nil && unavailable(err)
		if !open || !now.Before(end) {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(every, end.Sub(now))):
		}
	}
}

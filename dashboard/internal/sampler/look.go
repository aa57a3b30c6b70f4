package sampler

import (
	"context"
	"time"

	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

const (
	historyFor = 30 * time.Second
	// historyTimeout limits the reading of the history, so that a sample is ready in time without it.
	historyTimeout = LookTimeout / 2
	// countFor limits the time for which Watch counts dead tasks after each reading. If nobody watches, a
	// reading itself counts at most countPages pages, within countWaiting, because a page waits for it.
	countFor     = 200 * time.Millisecond
	countPages   = survey.MostDead / storage.MaxPage
	countWaiting = 10 * time.Millisecond
)

// Sample is the result of a reading of the storage. Nobody changes a sample once it is made.
type Sample struct {
	*survey.Survey

	Hour *ledger.Series // the last hour as the history was last read, nil if it never was
	// Err is the error of the storage, nil if it answered. Lost is the time of the first reading that failed.
	// The other fields are from the last reading that did not fail.
	Err  error
	Lost time.Time

	actions int64 // the actions in this process before the reading
}

// look reads the storage for a new sample. before is the sample before it, nil for the first.
func (s *Sampler) look(ctx context.Context, before *Sample) (*Sample, error) {
	read, err := s.reader.Read(ctx)
	if err != nil {
		return nil, err
	}
	s.skew.Store(int64(read.Skew))
	if s.watchers.Load() == 0 && before != nil && read.Dead == before.Dead { // nobody counts, and nothing died
		if err := s.countSome(ctx); err != nil {
			return nil, err
		}
		read.Dead = s.reader.Causes()
	}
	fresh := &Sample{Survey: read}
	s.readHistory(ctx, before, fresh)
	return fresh, nil
}

// countSome counts some dead tasks while a page waits.
func (s *Sampler) countSome(ctx context.Context) error {
	end := s.now().Add(countWaiting)
	for range countPages {
		more, err := s.reader.CountDead(ctx)
		if err != nil || !more || s.now().After(end) {
			return err
		}
	}
	return nil
}

// countDead counts further dead tasks for a while, and stops if somebody looks. The next sample shows the
// result.
func (s *Sampler) countDead(ctx context.Context) {
	for end := s.now().Add(countFor); s.now().Before(end); {
		if mine, _ := s.takeTurn(ctx, false); !mine {
			return
		}
		more, err := s.nextDead(ctx)
		<-s.turn
		if !more || err != nil { // the next reading shows the error
			return
		}
	}
}

// nextDead counts a further page. It takes no longer than a reading may, because readings wait for the turn.
func (s *Sampler) nextDead(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, LookTimeout)
	defer cancel()
	return s.reader.CountDead(ctx)
}

// readHistory reads the history of the last hour. If it cannot be read, pages show everything else.
func (s *Sampler) readHistory(ctx context.Context, before, fresh *Sample) {
	if before != nil {
		fresh.Hour = before.Hour
	}
	if before != nil && fresh.At.Sub(s.historyAt) < historyFor {
		return
	}
	s.historyAt = fresh.At
	end := s.StorageNow().Truncate(time.Minute).Add(time.Minute)
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	hour, err := s.ledger.Series(ctx, end.Add(-time.Hour), end, time.Minute)
	if err != nil {
		return
	}
	fresh.Hour = hour
	if before != nil {
		return
	}
	// One reading has no rates: those of the last minute that the history knows stand in for them.
	for i := len(hour.All) - 1; i >= max(0, len(hour.All)-4); i-- {
		if !hour.All[i].Known {
			continue
		}
		for j := range fresh.Queues {
			q := &fresh.Queues[j]
			q.Done, q.Failed = 0, 0
			if steps := hour.Queues[q.Queue]; i < len(steps) {
				q.Done, q.Failed = float64(steps[i].Done)/60, float64(steps[i].Failed)/60
			}
		}
		return
	}
}

// KnownMinutes returns how many minutes of the last hour the history knows.
func (s *Sample) KnownMinutes() (n int) {
	if s.Hour == nil {
		return 0
	}
	for _, p := range s.Hour.All {
		if p.Known {
			n++
		}
	}
	return n
}

// Recall overwrites points with the minutes of the queue that the history knows. The points have a minute
// each, and the first begins at from.
func (s *Sample) Recall(queue string, from time.Time, points []Point) {
	if s.Hour == nil {
		return
	}
	for i, all := range s.Hour.All {
		at := int(all.At.Sub(from) / time.Minute)
		// The last point is a minute that is not over, of which the history knows nothing.
		if !all.Known || all.At.Before(from) || at >= len(points)-1 {
			continue
		}
		p := all
		if queue != "" {
			p = ledger.Point{} // the queue was idle
			if steps := s.Hour.Queues[queue]; i < len(steps) {
				p = steps[i]
			}
		}
		points[at] = Point{Done: float64(p.Done), Failed: float64(p.Failed), Seen: true, Gap: all.Gap}
	}
}

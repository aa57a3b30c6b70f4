package dashboard

import (
	"context"
	"hash/fnv"
	"net/http"
	"strconv"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/storage"
)

// A cell is a text that the live stream keeps up to date on every page that shows it. Its key is "all."
// and a name, or "q.", a queue, ":" and a name: pages and stream write it with the same function.

// events is the live stream of the cells that change.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	if s.live.Closed() {
		s.fail(w, r, &statusError{http.StatusServiceUnavailable, "This dashboard is about to stop."})
		return
	}
	s.live.Serve(w, r, s.watch)
}

// watch tells the streams what each look at the storage finds, until ctx ends.
func (s *server) watch(ctx context.Context) {
	s.sampler.watch(ctx, func(now *sample, err error) {
		if err != nil {
			s.live.Tell(map[string]string{"lost": format.FirstLine(err.Error())})
			return
		}
		s.live.Tell(cells(now))
	})
}

// installationCells and queueCells name the cells.
var (
	installationCells = []string{
		"queues", "schedules", "runners", "dead", "live", "done", "failed", "share", "backlog", "oldest", "slots",
		"waiting", "pending", "scheduled", "retry", "completed", "cancelled", "trip", "counted",
	}
	queueCells = []string{
		"waiting", "pending", "scheduled", "retry", "completed", "cancelled", "dead", "done", "failed", "oldest",
		"runners", "live",
	}
)

// cell writes a cell of the whole installation.
func (s *sample) cell(name string) string {
	sum := func(of func(*queueNow) int64) string { return format.Number(s.sum(of)) }
	if state := storage.State(name); state.Valid() {
		return sum(func(q *queueNow) int64 { return q.Size(state) })
	}
	switch name {
	case "queues":
		return format.Number(int64(len(s.queues)))
	case "schedules":
		return format.Number(int64(len(s.schedules)))
	case "runners":
		return format.Number(int64(len(s.runners)))
	case "live":
		return sum(func(q *queueNow) int64 { return q.Live() })
	case "backlog":
		return sum(func(q *queueNow) int64 { return q.Waiting })
	case "done":
		done, _ := s.rates()
		return format.Rate(done)
	case "failed":
		_, failed := s.rates()
		return format.Rate(failed)
	case "share":
		return s.failedShare()
	case "oldest":
		return oldest(s.oldest())
	case "slots":
		used, slots := s.slots()
		return format.Number(used) + " of " + format.Number(slots)
	case "counted": // of the dead
		return s.counted()
	case "trip":
		return format.Duration(max(time.Microsecond, s.trip.Round(100*time.Microsecond)))
	}
	return format.Dash
}

// counted writes how many of the dead are counted by cause.
func (s *sample) counted() string {
	if s.dead == nil {
		return format.Dash
	}
	return format.Number(s.dead.Read)
}

func (s *sample) sum(of func(*queueNow) int64) (sum int64) {
	for i := range s.queues {
		sum += of(&s.queues[i])
	}
	return sum
}

// rates are those of all queues together, -1 where they are not known yet.
func (s *sample) rates() (done, failed float64) {
	if len(s.queues) > 0 && s.queues[0].done < 0 {
		return -1, -1
	}
	for i := range s.queues {
		done, failed = done+max(0, s.queues[i].done), failed+max(0, s.queues[i].failed)
	}
	return done, failed
}

// failedShare is how many of the attempts that end now fail.
func (s *sample) failedShare() string {
	done, failed := s.rates()
	if done+failed <= 0 {
		return format.Dash
	}
	return format.Percent(failed / (done + failed))
}

func (s *sample) oldest() (oldest time.Duration) {
	for i := range s.queues {
		oldest = max(oldest, s.queues[i].Oldest)
	}
	return oldest
}

// slots are those of all live runners, and how many of them are in use.
func (s *sample) slots() (used, slots int64) {
	for i := range s.runners {
		used, slots = used+int64(len(s.runners[i].Running)), slots+int64(s.runners[i].Concurrency)
	}
	return used, slots
}

func oldest(d time.Duration) string {
	if d == 0 {
		return format.Dash
	}
	return format.Age(d)
}

// Cell writes a cell of a queue.
func (q *queueNow) Cell(name string) string {
	switch name {
	case "done":
		return format.Rate(q.done)
	case "failed":
		return format.Rate(q.failed)
	case "oldest":
		return oldest(q.Oldest)
	case "runners":
		return format.Number(int64(q.runners))
	case "live":
		return format.Number(q.Live())
	}
	return format.Number(q.Size(storage.State(name)))
}

// Key is the key of a cell of the queue.
func (q *queueNow) Key(name string) string { return "q." + q.Queue + ":" + name }

// mark changes with what pages about the queue show beside its cells.
func (q *queueNow) mark() string {
	h := fnv.New64a()
	for _, n := range []int64{
		q.Waiting, q.Pending, q.Scheduled, q.Retry, q.Completed, q.Cancelled, q.Dead, q.Cursors, q.Damaged,
		q.Totals.Enqueued, q.Totals.Requeued, q.Totals.Completed, q.Totals.Deleted, q.Totals.Failed,
		q.PausedUntil.UnixMicro(), int64(len(q.unknown)), int64(q.runners),
	} {
		_, _ = h.Write(strconv.AppendInt(nil, n, 36))
		_, _ = h.Write([]byte{' '})
	}
	_, _ = h.Write(strconv.AppendBool(nil, q.Paused))
	return strconv.FormatUint(h.Sum64(), 36)
}

// cells gives all cells of a sample, and the marks with which pages are read anew.
func cells(now *sample) map[string]string {
	cells := make(map[string]string, len(installationCells)+(len(queueCells)+1)*len(now.queues)+4)
	for _, name := range installationCells {
		cells["all."+name] = now.cell(name)
	}
	all := fnv.New64a()
	for i := range now.queues {
		q := &now.queues[i]
		for _, name := range queueCells {
			cells[q.Key(name)] = q.Cell(name)
		}
		mark := q.mark()
		cells[q.Key("mark")] = mark
		_, _ = all.Write([]byte(mark))
	}
	for i := range now.runners {
		_, _ = all.Write([]byte(now.runners[i].ID))
	}
	cells["all.mark"] = strconv.FormatUint(all.Sum64(), 36)
	// Charts move on with time, whatever happens.
	cells["all.tick"] = strconv.FormatInt(now.at.UnixNano()/int64(spans[0]), 36)
	cells["all.second"] = strconv.FormatInt(now.at.Unix(), 36)
	if now.err != nil {
		cells["lost"] = now.lost.UTC().Format("15:04:05") + " UTC"
	}
	return cells
}

// SizeOf is Size by the name of a state.
func (q *queueNow) SizeOf(state string) int64 { return q.Size(storage.State(state)) }

// Rate is how many tasks of the queue are done a second.
func (q *queueNow) Rate() float64 { return q.done }

// Queues are all queues.
func (s *sample) Queues() []queueNow { return s.queues }

// Empty reports whether there is no queue at all.
func (s *sample) Empty() bool { return len(s.queues) == 0 }

// Info is what the storage tells of itself.
func (s *sample) Info() storage.Description { return s.info }

// Err is why the storage does not answer, nil where it does.
func (s *sample) Err() error { return s.err }

// Lost is since when it does not.
func (s *sample) Lost() time.Time { return s.lost }

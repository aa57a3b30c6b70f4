package dashboard

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// A cell is a text that the live stream keeps up to date on every page that shows it. Its key is "all." and a
// name, or "q.", a queue, ":" and a name. Pages and the stream get the text of a cell from the same function.

// events serves the live stream of the cells that change.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	if s.live.Closed() {
		s.fail(w, r, &statusError{http.StatusServiceUnavailable, "This dashboard is shutting down."})
		return
	}
	if s.cfg.Who == nil { // the users of an application may share a name
		user := userOf(r.Context()).Name
		if !s.streams.begin(user) {
			text := "You have too many pages open to keep this one up to date."
			s.fail(w, r, &statusError{http.StatusTooManyRequests, text})
			return
		}
		defer s.streams.end(user)
	}
	s.live.Serve(w, r, s.watch, s.mayWatch(r))
}

// whoEach is how long an answer of Config.Who holds for a stream.
const whoEach = 5 * time.Second

// mayWatch returns a function that reports whether the viewer of a stream may still see it. The function
// checks the file of users each time, and calls Config.Who once in whoEach.
func (s *server) mayWatch(r *http.Request) func() bool {
	still, asked := viewerOf(r.Context()).still, time.Now()
	return func() bool {
		if s.cfg.Who != nil && time.Since(asked) < whoEach {
			return true
		}
		asked = time.Now()
		return still() == nil
	}
}

// watch sends each sample to the streams, until ctx ends.
func (s *server) watch(ctx context.Context) {
	s.sampler.Watch(ctx, func(now *sampler.Sample, err error) {
		if err != nil {
			s.live.Tell(map[string]string{"lost": "this page was opened"})
			return
		}
		s.live.Tell(cells(now))
	})
}

// installationCells and queueCells name all cells. No page shows a mark, a tick or a second: pages watch
// these cells, and are fetched again when one of them changes.
var (
	installationCells = append(namesOf(storage.TaskStates()),
		"queues", "schedules", "runners", "live", "done", "failed", "share", "backlog", "oldest", "slots", "trip",
		"counted", "mark", "tick", "second")
	queueCells = append(namesOf(storage.TaskStates()), "done", "failed", "oldest", "runners", "live", "mark")
)

// namesOf returns the names of states.
func namesOf(states []storage.State) []string {
	names := make([]string, len(states))
	for i, state := range states {
		names[i] = string(state)
	}
	return names
}

// cells returns all cells of a sample that the stream sends.
func cells(now *sampler.Sample) map[string]string {
	cells := make(map[string]string, len(installationCells)+len(queueCells)*len(now.Queues)+1)
	for _, name := range installationCells {
		cells["all."+name] = installationCell(now, name)
	}
	if tellsQueues(now) {
		for i := range now.Queues {
			q := queueView{&now.Queues[i]}
			for _, name := range queueCells {
				cells[q.Key(name)] = q.Cell(name)
			}
		}
	}
	if now.Err != nil {
		cells["lost"] = now.Lost.UTC().Format("15:04:05") + " UTC"
	}
	return cells
}

// A stream begins with all cells, so there is a limit for their size. mostTold limits the bytes of the cells
// of queues, and cellSize is the most that a cell takes besides the name of its queue, in bytes.
const mostTold, cellSize = 1 << 20, 30

// tellsQueues reports whether the stream sends the cells of queues. If there are too many queues it does not,
// and all pages are fetched again when the mark of the installation changes.
func tellsQueues(s *sampler.Sample) bool {
	size := 0
	for i := range s.Queues {
		size += len(queueCells) * (len(s.Queues[i].Queue) + cellSize)
	}
	return size <= mostTold
}

// watchQueue returns the key that a page about a queue watches.
func (v *view) watchQueue(queue string) string {
	if tellsQueues(v.Sample) {
		return queueKey(queue, "mark")
	}
	return "all.mark"
}

// Marks returns, as JSON, the cells that the page watches as they were when it was rendered. The browser
// compares them with the stream, to find those that have changed since.
func (v *view) Marks() (string, error) {
	marks := make(map[string]string)
	for key := range strings.FieldsSeq(v.Watch) {
		if name, ok := strings.CutPrefix(key, "all."); ok {
			marks[key] = installationCell(v.Sample, name)
			continue
		}
		queue, name := key[len("q."):strings.LastIndexByte(key, ':')], key[strings.LastIndexByte(key, ':')+1:]
		marks[key] = ""
		if q := v.Sample.Queue(queue); q != nil {
			marks[key] = queueView{q}.Cell(name)
		}
	}
	encoded, err := json.Marshal(marks)
	return string(encoded), err
}

// installationCell returns the text of a cell of the whole installation.
func installationCell(s *sampler.Sample, name string) string {
	sum := func(of func(*survey.Queue) int64) string { return format.Number(s.Sum(of)) }
	if state := storage.State(name); state.Valid() {
		return sum(func(q *survey.Queue) int64 { return q.Size(state) })
	}
	switch name {
	case "queues":
		return format.Number(int64(len(s.Queues)))
	case "schedules":
		return format.Number(int64(len(s.Schedules)))
	case "runners":
		return format.Number(int64(len(s.Runners)))
	case "live":
		return sum(func(q *survey.Queue) int64 { return q.Live() })
	case "backlog":
		return sum(func(q *survey.Queue) int64 { return q.Waiting })
	case "done":
		done, _ := s.Rates()
		return format.Rate(done)
	case "failed":
		_, failed := s.Rates()
		return format.Rate(failed)
	case "share":
		return failedShare(s)
	case "oldest":
		return oldest(s.Oldest())
	case "slots":
		used, slots := s.Slots()
		return format.Number(used) + " of " + format.Number(slots)
	case "counted": // the dead tasks
		return counted(s)
	case "mark":
		return strconv.FormatUint(s.Mark, 36)
	case "tick": // charts advance with time, even if nothing happens
		return strconv.FormatInt(s.At.UnixNano()/int64(sampler.Spans[0]), 36)
	case "second":
		return strconv.FormatInt(s.At.Unix(), 36)
	case "trip":
		return format.Duration(max(time.Microsecond, s.RoundTrip.Round(100*time.Microsecond)))
	}
	return format.Dash
}

// counted returns how many dead tasks have been counted by cause.
func counted(s *sampler.Sample) string {
	if s.Dead == nil {
		return format.Dash
	}
	return format.Number(s.Dead.Read)
}

// failedShare returns the share of attempts that fail now, a dash if there are none.
func failedShare(s *sampler.Sample) string {
	done, failed := s.Rates()
	if done+failed <= 0 {
		return format.Dash
	}
	return format.Percent(failed / (done + failed))
}

// oldest returns how long the oldest task has waited, a dash if none waits.
func oldest(d time.Duration) string {
	if d == 0 {
		return format.Dash
	}
	return format.Age(d)
}

// oldestSeen returns the longest time that a task has waited according to the history, a dash if none has.
// The history has whole seconds, so a shorter time is written as less than one.
func oldestSeen(t ledger.Totals) string {
	if t.Waiting > 0 && t.Oldest == 0 {
		return "<" + format.NBSP + "1" + format.NBSP + "s"
	}
	return oldest(t.Oldest)
}

// Cell returns the text of a cell of the queue.
func (q queueView) Cell(name string) string {
	switch name {
	case "done":
		return format.Rate(q.Done)
	case "failed":
		return format.Rate(q.Failed)
	case "oldest":
		return oldest(q.Oldest)
	case "runners":
		return format.Number(int64(q.Runners))
	case "live":
		return format.Number(q.Live())
	case "mark":
		return strconv.FormatUint(q.Mark, 36)
	}
	return format.Number(q.Size(storage.State(name)))
}

// Key returns the key of a cell of the queue.
func (q queueView) Key(name string) string { return queueKey(q.Queue, name) }

// queueKey returns the key of a cell of a queue.
func queueKey(queue, name string) string { return "q." + queue + ":" + name }

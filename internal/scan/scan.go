// Package scan reads the tasks that match a filter, queue by queue, state by state and page by page. A call
// reads about as much as its budget allows, and returns a cursor for the next call. So a million tasks are
// searched in steps, and each step answers soon:
//
//	searched 120,000 of 1,000,000
//
// Queues come in the order of their names, states in the order of a task's life, and tasks in the
// storage's order of their state. A task that moves during the search may be left out or come twice. A task
// that stays comes once.
//
// A filter that names one partition makes a search read the line of that partition alone among the waiting
// tasks of a queue, unless the queue has declined tasks, which stand in other lines.
package scan

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
)

// The defaults of a request.
const (
	DefaultLimit = 50
	DefaultTasks = 20_000
	DefaultTime  = 250 * time.Millisecond
)

// Source has the methods of a storage that a scan calls.
type Source interface {
	storage.Reader

	Stats(ctx context.Context, queues ...string) ([]storage.Stats, error)
	Describe(ctx context.Context) (storage.Description, error)
}

// Request asks for tasks. Its zero value asks for the first live tasks of all queues.
type Request struct {
	// Filter chooses the tasks. Its durations count from the storage's time at the first call.
	Filter filter.Filter
	// Queues are the queues to read, as far as the filter matches their names. nil means all queues that are
	// not hidden.
	Queues []string
	// States are the states to read if the filter names none. nil means the live states.
	States []storage.State
	// Limit is the number of tasks to return, 0 for DefaultLimit.
	Limit int
	// Count makes the scan go on behind the last task that it returns, and count further matches within the
	// budget: see Page.Rest.
	Count bool
	// Tasks bounds the tasks that are read, to within a page: 0 for DefaultTasks, negative for no bound.
	Tasks int
	// Time bounds how long pages are read, to within a page. The tasks of that last page are matched for as long
	// again at most. 0 means DefaultTime, negative no bound.
	Time time.Duration
	// Newest reads the ended tasks of each queue from the newest on: see storage.TasksQuery. Queues and states
	// keep their order.
	Newest bool
	// Cursor is the cursor of the page before, "" for the first page. It is valid for the same filter, queues,
	// states and Newest.
	Cursor string
}

// Order returns the order in which the tasks come. It is "" if the newest are not first, because Newest is
// not set or states are read whose tasks have not ended.
func (r *Request) Order() string {
	states := r.states()
	for _, state := range states {
		if !r.Newest || !state.Ended() {
			return ""
		}
	}
	exact, _ := r.Filter.Queues()
	switch one := len(r.Queues) == 1 || len(exact) == 1; {
	case one && len(states) > 1:
		return "the newest of each state first"
	case one:
		return "newest first"
	case len(states) > 1:
		return "the newest of each queue and state first"
	}
	return "the newest of each queue first"
}

// states returns the states to read, in their order.
func (r *Request) states() []storage.State {
	states := r.States
	if states == nil {
		states = storage.StatesWhere(storage.State.Live)
	}
	return r.Filter.States(states...)
}

// Page has the tasks that a call found.
type Page struct {
	// Tasks are the matching tasks, at most Request.Limit. Stack, Result, Progress and Checkpoint are left out.
	Tasks []storage.Task
	// Searched counts the tasks that were read since the first call, and Matched the tasks that
	// matched.
	Searched, Matched int64
	// Total is about the number of tasks to search. It is at least Searched.
	Total int64
	// Cursor is where the next call goes on, "" if all tasks are searched. It does not promise that a task
	// remains.
	Cursor string
	// Rest is the cursor of the first matching task that was counted but for which Request.Limit left no room,
	// "" if there is none. Cursor lies behind all counted tasks.
	Rest string
	// Now is the storage's time at the first call.
	Now time.Time
}

// Done reports whether all tasks are searched.
func (p *Page) Done() bool { return p.Cursor == "" }

// Next reads from the cursor of a request on, at least one page. It returns a *[storage.InvalidError] for a
// damaged cursor, a cursor of another filter, and an invalid name.
func Next(ctx context.Context, store Source, req Request) (Page, error) {
	w, err := begin(ctx, store, req)
	if err != nil {
		return Page{}, err
	}
	if err := w.walk(ctx); err != nil {
		return Page{}, err
	}
	if w.page.Total = max(w.page.Total, w.page.Searched); w.page.Done() {
		w.page.Total = w.page.Searched // less, if a partition has only some of the tasks in partitions
	}
	return w.page, nil
}

// place is a state of a queue, and the cursor in it at which a page begins. partition is the key of the
// partition whose line is read alone, "" for all tasks of the state.
type place struct {
	queue     string
	state     storage.State
	partition string
	after     string
}

// resume goes on at a mark of the place, in the line in which the page before ended.
func (p *place) resume(from mark, partition string) {
	if p.after = from.After; p.after == "" {
		return
	}
	if p.partition = ""; from.Line {
		p.partition = partition
	}
}

// mark is a decoded cursor.
type mark struct {
	Queue    string        `json:"q"`
	State    storage.State `json:"s"`
	After    string        `json:"a,omitempty"`
	Line     bool          `json:"l,omitempty"` // After is a cursor in the line of a partition
	Searched int64         `json:"n"`
	Matched  int64         `json:"m"`
	Now      int64         `json:"t"` // in microseconds
	Of       uint64        `json:"f"` // distinguishes requests
}

// walker is one call under way.
type walker struct {
	store  Source
	req    Request
	of     uint64
	places []place // the places that are not read to their end
	read   int
	until  time.Time // zero for no bound
	page   Page

	rest    mark      // behind the last task of the page, if further matches are counted
	most    int       // the size of a page of the storage
	reached time.Time // when the last task that was read ended, zero if it has not
}

func begin(ctx context.Context, store Source, req Request) (*walker, error) {
	w := &walker{store: store, req: req, most: storage.MaxPage}
	w.defaults()
	from, err := w.from(req.Cursor)
	if err != nil {
		return nil, err
	}
	w.page = Page{Searched: from.Searched, Matched: from.Matched, Now: time.UnixMicro(from.Now).UTC()}
	if req.Cursor == "" {
		d, err := store.Describe(ctx)
		if err != nil {
			return nil, fmt.Errorf("scan: ask for the time: %w", err)
		}
		w.page.Now = d.Now
	}
	w.req.Filter = req.Filter.At(w.page.Now)
	if req.Queues != nil {
		w.req.Filter = w.req.Filter.WithHidden()
	}
	names, err := w.names(ctx)
	if err != nil {
		return nil, err
	}
	return w, w.list(ctx, names, from)
}

// defaults sets the fields that the request leaves out.
func (w *walker) defaults() {
	r := &w.req
	if r.Limit == 0 {
		r.Limit = DefaultLimit
	}
	if r.Tasks == 0 {
		r.Tasks = DefaultTasks
	}
	if r.Time == 0 {
		r.Time = DefaultTime
	}
	if r.Time > 0 {
		w.until = time.Now().Add(r.Time)
	}
	r.States = r.states()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s|%q|%v|%t", r.Filter, r.Queues, r.States, r.Newest)
	w.of = h.Sum64()
}

// from decodes a cursor.
func (w *walker) from(cursor string) (mark, error) {
	var m mark
	if cursor == "" {
		return m, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil || m.Queue == "" || !m.State.Valid() || m.Searched < 0 || m.Matched < 0 {
		return m, storage.Invalid("cursor", cursor, "the cursor of a page before")
	}
	if m.Of != w.of {
		return m, storage.Invalid("cursor", cursor, "a cursor of the same filter, queues, states and order")
	}
	return m, nil
}

// names returns the queues to search.
func (w *walker) names(ctx context.Context) (names []string, err error) {
	exact, prefix := w.req.Filter.Queues()
	switch {
	case exact != nil && w.req.Queues != nil:
		names = slices.DeleteFunc(exact, func(name string) bool { return !slices.Contains(w.req.Queues, name) })
	case exact != nil:
		names = exact
	case w.req.Queues != nil:
		names = slices.Compact(slices.Sorted(slices.Values(w.req.Queues)))
	default:
		for name, err := range storage.EachQueue(ctx, w.store, prefix) {
			if err != nil {
				return nil, fmt.Errorf("scan: list queues: %w", err)
			}
			names = append(names, name)
		}
	}
	for _, name := range names {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return !w.req.Filter.MatchQueue(name) }), nil
}

// list sets the places from a mark on that have tasks, and counts the tasks of all places.
func (w *walker) list(ctx context.Context, names []string, from mark) error {
	for some := range slices.Chunk(names, storage.MaxNames) {
		stats, err := w.store.Stats(ctx, some...)
		if err != nil {
			return fmt.Errorf("scan: count the tasks of queues: %w", err)
		}
		for i := range stats {
			for _, state := range w.req.States {
				p, size := w.place(&stats[i], state)
				w.page.Total += size
				order := strings.Compare(p.queue, from.Queue)
				if order == 0 {
					order = slices.Index(w.req.States, state) - slices.Index(w.req.States, from.State)
				}
				if order == 0 {
					p.resume(from, w.req.Filter.Partition())
				}
				if size > 0 && order >= 0 {
					w.places = append(w.places, p)
				}
			}
		}
	}
	return nil
}

// place returns the place of a state in a queue, and the number of tasks to read there.
func (w *walker) place(s *storage.Stats, state storage.State) (place, int64) {
	p, size := place{queue: s.Queue, state: state}, s.Size(state)
	if state == storage.Waiting && len(s.Declined) == 0 {
		if p.partition = w.req.Filter.Partition(); p.partition != "" {
			size = s.Partitioned
		}
	}
	return p, size
}

// walk reads one place after the other.
func (w *walker) walk(ctx context.Context) error {
	for len(w.places) > 0 {
		if w.page.Cursor = w.cursor(); w.spent() {
			break
		}
		p := &w.places[0]
		next, err := w.step(ctx, *p)
		if err != nil {
			return fmt.Errorf("scan: list %s tasks of %s: %w", p.state, p.queue, err)
		}
		if p.after = next; next == "" {
			w.places = w.places[1:]
		}
		if w.req.Count && w.rest.Queue == "" && len(w.page.Tasks) >= w.req.Limit && len(w.places) > 0 {
			w.rest = w.mark()
		}
	}
	if len(w.places) == 0 {
		w.page.Cursor = ""
	}
	if w.rest.Queue != "" && w.rest.Matched < w.page.Matched {
		w.page.Rest = w.rest.String()
	}
	return nil
}

// spent reports whether the page is full or the budget is used up.
func (w *walker) spent() bool {
	if !w.req.Count && len(w.page.Tasks) >= w.req.Limit {
		return true
	}
	return w.read > 0 && (w.req.Tasks > 0 && w.read >= w.req.Tasks || !w.until.IsZero() && time.Now().After(w.until))
}

// step reads a page of the storage, and returns the cursor of the next page, "" behind the last. If more tasks
// of the page match than there is room for, or matching takes longer than the budget, the page is read again
// with fewer tasks: up to the last task with room, or up to the last that was matched in time. The next call
// then goes on behind that task. A shorter page is the only way to get a cursor there from a storage.
func (w *walker) step(ctx context.Context, p place) (next string, err error) {
	wanted := w.req.Limit - len(w.page.Tasks)
	query := w.query(p, wanted)
	for late := false; ; {
		page, err := w.store.Tasks(ctx, query)
		if err != nil {
			return "", err
		}
		w.read += len(page.Tasks) // a page that is read again counts again, because it is work
		found := make([]storage.Task, 0, max(0, min(wanted, len(page.Tasks))))
		matched, last := 0, 0
		cut, began := 0, time.Now()
		for i, t := range page.Tasks {
			if err := ctx.Err(); err != nil {
				return "", err
			}
			if !late && i > 0 && w.req.Time > 0 && time.Since(began) > w.req.Time {
				cut = i
				break
			}
			if !w.req.Filter.Match(t) {
				continue
			}
			if matched++; matched <= wanted {
				found, last = append(found, t), i
			}
		}
		if matched > wanted && (wanted > 0 || !w.req.Count) {
			query.Limit = last + 1
			continue
		}
		if cut > 0 { // read again the tasks for which there was time
			query.Limit, late = cut, true
			continue
		}
		w.page.Tasks = append(w.page.Tasks, found...)
		w.passed(page.Tasks)
		w.page.Matched += int64(matched)
		return page.Next, nil
	}
}

// query returns the query for a page at a place.
func (w *walker) query(p place, wanted int) storage.TasksQuery {
	query := storage.TasksQuery{
		Queue: p.queue, State: p.state, Partition: p.partition, After: p.after, Limit: w.most,
		Newest: w.req.Newest && p.state.Ended(),
	}
	if w.req.Filter.IsZero() && !w.req.Count {
		query.Limit = min(query.Limit, wanted)
	}
	return query
}

// passed counts searched tasks.
func (w *walker) passed(tasks []storage.Task) {
	if n := len(tasks); n > 0 {
		w.reached = tasks[n-1].Ended
	}
	w.page.Searched += int64(len(tasks))
}

// cursor returns the cursor of the first place that is not read to its end.
func (w *walker) cursor() string { return w.mark().String() }

// mark returns the mark of that place.
func (w *walker) mark() mark {
	p := w.places[0]
	return mark{
		Queue: p.queue, State: p.state, After: p.after, Line: p.partition != "", Searched: w.page.Searched,
		Matched: w.page.Matched, Now: w.page.Now.UnixMicro(), Of: w.of,
	}
}

// String encodes the mark as a cursor.
func (m mark) String() string {
	b, _ := json.Marshal(m) //nolint:errchkjson // cannot fail: texts and numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

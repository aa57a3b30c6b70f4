package dashboard

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
)

// mostPartitions limits the partitions that the page of a queue lists at once.
const mostPartitions = 20

// partitionsTimeout limits the reading of a page of partitions, so that the page of a queue is shown without
// them before its time ends.
const partitionsTimeout = sampler.LookTimeout / 2

// partitionsData are the partitions of a queue that its page lists.
type partitionsData struct {
	Rows        []partitionView
	Limit       storage.PartitionLimit // of each partition
	First, Next string                 // the addresses of pages of the list, "" for none
	Problem     string                 // why there is no list, "" if there is one
	// Running and Starts are set if the limit of a row has a concurrency, or a rate.
	Running, Starts bool
}

// Shown reports whether the page has the list. A queue without partitions has none.
func (d *partitionsData) Shown() bool {
	return len(d.Rows) > 0 || d.First != "" || d.Next != "" || d.Problem != ""
}

// partitionView is a partition in a list.
type partitionView struct {
	storage.PartitionStats

	URL string // the list of its waiting tasks
	Ask string // the dialog that pauses or resumes it

	Running, Starts string // "2 of 3", how much of its limit it uses; "" without such a bound
	Own             string // its own limit, "" if the limit of all partitions holds
	At              bool   // its limit admits no other start now
	// Ready is when a pause, a rest and the wait for its rate are over, zero for now or if it is not known.
	Ready time.Time
}

// partitionView returns a partition of a queue as its page lists it. l is the limit of the partitions.
func (v *view) partitionView(queue string, p storage.PartitionStats, l storage.PartitionLimit) partitionView {
	do := "pause-partition"
	if p.Paused {
		do = "resume-partition"
	}
	full, spent := p.AtLimit(l)
	pv := partitionView{
		PartitionStats: p, At: full || spent, URL: v.partitionURL(queue, p.Key),
		Ask: v.URL("/action", "do", do, "queue", queue, "partition", p.Key),
	}
	if p.Limit != nil {
		pv.Own = words.PartitionLimit(*p.Limit)
	}
	l = p.InForce(l)
	if l.Concurrency > 0 {
		pv.Running = format.Number(p.Running) + " of " + format.Number(int64(l.Concurrency))
	}
	if l.Rate.N > 0 {
		pv.Starts = format.Number(storage.Started(p.Counts)) + " of " + format.Number(int64(l.Rate.N))
	}
	if !full && (!p.Paused || !p.PausedUntil.IsZero()) {
		pv.Ready = slices.MaxFunc([]time.Time{p.PausedUntil, p.Rests, p.Next}, time.Time.Compare)
	}
	return pv
}

// partitions reads a page of the partitions of a queue. It reads nothing while the storage does not answer.
func (s *server) partitions(r *http.Request, v *view, q queueView) (d partitionsData, err error) {
	query := storage.PartitionsQuery{Queue: q.Queue, After: r.URL.Query().Get("after"), Limit: mostPartitions}
	if err := storage.CheckPartitions(&query); err != nil || v.Away() {
		return d, err
	}
	// All viewers share the page, so the reading goes on if the viewer leaves who began it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), partitionsTimeout)
	defer cancel()
	page, err := s.store.Partitions(ctx, query)
	if err != nil {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "midge: the dashboard cannot read the partitions of a queue",
			slog.String("queue", q.Queue), slog.Any("error", err))
		if q.Partitioned > 0 {
			_, d.Problem = status(err)
		}
		return d, nil
	}
	d.Limit = q.sampledQueue.Limit.InForce().Partition
	for _, p := range page.Partitions {
		row := v.partitionView(q.Queue, p, d.Limit)
		d.Rows = append(d.Rows, row)
		d.Running, d.Starts = d.Running || row.Running != "", d.Starts || row.Starts != ""
	}
	if query.After != "" {
		d.First = v.QueueURL(q.Queue)
	}
	if page.Next != "" {
		d.Next = v.URL("/queues/"+url.PathEscape(q.Queue), "after", page.Next)
	}
	return d, nil
}

// partitionURL returns the address of the list of the waiting tasks of a partition.
func (v *view) partitionURL(queue, key string) string {
	return v.listURL(chosen{queue, string(storage.Waiting), "partition:" + filter.Quote(key)}, "")
}

// ofPartition has the actions on a partition.
var ofPartition = map[string]bool{"pause-partition": true, "resume-partition": true}

// askPartition completes the dialog before a partition is paused or resumed. It need not have tasks.
func (s *server) askPartition(ctx context.Context, v *view, a action, d *askData) error {
	if err := storage.CheckPartition(d.Partition); err != nil {
		return err
	}
	if v.Sample.Queue(d.Queue) == nil {
		return noQueue(d.Queue)
	}
	page, err := s.store.Partitions(ctx, storage.PartitionsQuery{Queue: d.Queue, Key: d.Partition})
	if err != nil {
		return err
	}
	waits := int64(0)
	for _, p := range page.Partitions {
		waits += p.Waiting
	}
	d.Title = a.title + " the partition " + d.Partition + " of the queue " + d.Queue + "?"
	d.Says += " " + waitsNow(waits) + "."
	d.Pause = d.Do == "pause-partition"
	d.Command = commandLine("midge", "queue", strings.TrimSuffix(d.Do, "-partition"), d.Queue,
		"--partition="+d.Partition)
	return nil
}

// orderPartition returns the order to pause or to resume a partition.
func (s *server) orderPartition(r *http.Request, d *askData) (order, error) {
	err := storage.CheckPartition(d.Partition)
	if err == nil {
		_, err = s.askedQueue(r, d)
	}
	if err != nil {
		return order{}, err
	}
	e := s.entry(r, strings.TrimSuffix(d.Do, "-partition"))
	e.Queue = d.Queue
	pause, done := storage.Pause{}, " is resumed."
	if d.Do == "pause-partition" {
		if pause, e.Note, err = askedPause(r); err != nil {
			return order{}, err
		}
		done = " is paused."
	}
	e.OnPartition(d.Partition)
	text := "The partition " + d.Partition + " of the queue " + d.Queue + done
	return s.ordered(r, e, text, s.configured(d.Queue, d.Partition, pause)), nil
}

// ordered returns the order for a change of one thing. text is shown once the change is done.
func (s *server) ordered(r *http.Request, e ledger.Entry, text string, do func(context.Context) error) order {
	return order{e, func(record *ledger.Action) (notice, error) {
		err := do(r.Context())
		s.writtenOne(r.Context(), record, err)
		return notice{Text: text}, err
	}}
}

// askedPause reads the pause of a form, and its duration as a note for the audit.
func askedPause(r *http.Request) (storage.Pause, string, error) {
	length := r.PostFormValue("for")
	span, ok := pauses[length]
	switch {
	case !ok:
		return storage.Pause{}, "", storage.Invalid("for", length, "one of the times that the dialog offers")
	case span == 0:
		return storage.Pause{On: true}, "", nil
	}
	return storage.Pause{On: true, For: span}, "for " + length, nil
}

// configured returns a function that pauses or resumes a queue, or one of its partitions unless key is "".
func (s *server) configured(queue, key string, p storage.Pause) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.session.Configure(ctx, queue, storage.Settings{Partition: key, Pause: &p})
	}
}

package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// Task reads one task, in one script call. It returns [storage.ErrNotFound] if there is none, and
// [storage.ErrDamaged] if its record cannot be read or was set apart.
func (s *Storage) Task(ctx context.Context, ref storage.Ref) (storage.Task, error) {
	var none storage.Task
	if err := storage.CheckRef(ref); err != nil {
		return none, err
	}
	action := "task " + ref.String()
	if err := s.mayRead(); err != nil {
		return none, wrap(action, err)
	}
	list, err := s.scripts.task.list(ctx, s.client, s.keys.of(ref.Queue, nil), ref.ID)
	if err != nil {
		return none, wrap(action, err)
	}
	if len(list) == 0 {
		return none, fmt.Errorf("redis: %s: %w", action, storage.ErrNotFound)
	}
	t, err := s.readTask(ref, values(list))
	if err != nil {
		return none, fmt.Errorf("redis: %s: %w", action, err)
	}
	return t, nil
}

func (s *Storage) readTask(ref storage.Ref, v *reply) (storage.Task, error) {
	t := storage.Task{Ref: ref}
	letter := first(v.text())
	if letter == '!' {
		return t, storage.ErrDamaged
	}
	f := found{letter: letter, score: v.number(), record: v.text(), lease: v.text()}
	if v.bad {
		return t, errReply
	}
	// The task's fields of the side hash, in the order of KINDS in lib.lua.
	history, _ := v.optional()
	stack, _ := v.optional()
	for _, to := range []*[]byte{&t.Result, &t.Progress, &t.Checkpoint} {
		if text, ok := v.optional(); ok {
			*to = []byte(text)
		}
	}
	body, _ := v.optional()
	t.Stack, f.history, f.body = stack, history, body
	if err := s.fill(&t, &f); err != nil {
		return t, err
	}
	return t, nil
}

// found is a task as the scripts return it.
type found struct {
	letter                       byte
	score                        int64
	record, lease, history, body string
}

// fill fills t with the values that the scripts returned. It returns storage.ErrDamaged, or an error
// that wraps it, if the record or the lease cannot be read.
func (s *Storage) fill(t *storage.Task, f *found) error {
	if err := readRecord(f.record+f.body, t); err != nil {
		return err
	}
	readHistory(f.history, t)
	switch t.State = stateOf(f.letter); {
	case t.State == storage.Waiting:
		if f.letter == states.Of(states.Declined).Letter {
			t.PassedOver, t.Declined = storage.PassedOverKind, moment(f.score)
			break
		}
		t.PassedOver = storage.PassedOver(t.Crashes, t.CrashLimit, f.record[2]&startOnly != 0)
	case t.State == storage.Pending:
		l, err := readLease(f.lease)
		if err != nil {
			return err
		}
		t.Version, t.Runner, t.Started, t.CancelAsked = l.version, l.runner, l.started, l.asked
		t.LeaseUntil, t.Claimed = moment(f.score), l.claimed
	case t.State == storage.Dead:
		t.Ended = moment(f.score)
		t.Expires = t.Ended.Add(s.limits.DeadFor)
	case t.State.Ended():
		t.Expires = moment(f.score)
		t.Ended = t.Expires.Add(-t.Keep.Of(t.State, true))
	case t.State.Live():
		t.Due = moment(f.score)
	}
	return nil
}

// Tasks lists a page of the tasks of one state, in one script call. Next names the position of the
// page's last task: its score and its id or place, or its kind or partition and its place if it stands in the
// line of one.
func (s *Storage) Tasks(ctx context.Context, query storage.TasksQuery) (storage.TasksPage, error) {
	var page storage.TasksPage
	if err := storage.CheckTasks(&query); err != nil {
		return page, err
	}
	score, id, ok := strings.Cut(query.After, " ")
	if query.After != "" && (!ok || query.Partition == "" && !scored(score) && !placed(score, id) ||
		query.Partition != "" && (score != "="+hex.EncodeToString([]byte(query.Partition)) || !placed(score, id))) {
		return page, storage.Invalid("TasksQuery.After", query.After, "the Next of a page")
	}
	action := "tasks of " + query.Queue
	if err := s.mayRead(); err != nil {
		return page, wrap(action, err)
	}
	newest := ""
	if query.Newest {
		newest = "1"
	}
	list, err := s.scripts.list.list(ctx, s.client, s.keys.of(query.Queue, nil),
		letterOf(query.State), query.Limit, score, id, newest, query.Partition)
	if err != nil {
		return page, wrap(action, err)
	}
	v := values(list)
	page.Next = v.text()
	for len(v.list) > 0 && !v.bad {
		letter := first(v.text())
		t := storage.Task{Ref: storage.Ref{Queue: query.Queue, ID: v.text()}}
		f := found{letter: letter, score: v.number(), record: v.text(), lease: v.text()}
		f.history, f.body = v.text(), v.text()
		if s.fill(&t, &f) == nil {
			page.Tasks = append(page.Tasks, t)
		}
	}
	if v.bad {
		return storage.TasksPage{}, wrap(action, errReply)
	}
	return page, nil
}

// scored reports whether a text is a score as list.lua writes it.
func scored(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil && strings.Trim(text, "-+.e0123456789") == "" // as of %.17g
}

// placed reports whether two texts are the line and the place of a task in a line by name as list.lua writes
// them.
func placed(line, place string) bool {
	if _, err := hex.DecodeString(place); err != nil || len(place) != 2+2*placeSize {
		return false
	}
	if kind, declined := strings.CutPrefix(line, "!"); declined {
		return storage.CheckName("kind", kind) == nil
	}
	digits, keyed := strings.CutPrefix(line, "=")
	key, err := hex.DecodeString(digits)
	return keyed && err == nil && storage.CheckPartition(string(key)) == nil
}

// statsQueues is how many queues one script call reads. It keeps a call below 5 ms of the server's time,
// also if tasks of all priorities wait in each queue.
const statsQueues = 16

// Stats returns sizes and totals of queues. It makes one script call for each 16 queues of a slot, one
// after the other.
func (s *Storage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	for _, name := range queues {
		if err := storage.CheckName("queue name", name); err != nil {
			return nil, err
		}
	}
	if err := s.mayRead(); err != nil {
		return nil, wrap("stats", err)
	}
	stats := make([]storage.Stats, len(queues))
	bySlot := make(map[int][]int)
	for i, name := range queues {
		bySlot[s.slot(name)] = append(bySlot[s.slot(name)], i)
	}
	for _, at := range bySlot {
		for len(at) > 0 {
			n := min(len(at), statsQueues)
			if err := s.stats(ctx, queues, at[:n], stats); err != nil {
				return nil, wrap("stats", err)
			}
			at = at[n:]
		}
	}
	return stats, nil
}

// stats fills in the stats of the queues with the indexes at.
func (s *Storage) stats(ctx context.Context, queues []string, at []int, stats []storage.Stats) error {
	var keys []any
	for _, i := range at {
		keys = s.keys.of(queues[i], keys)
	}
	list, err := s.scripts.stats.list(ctx, s.client, keys, len(at))
	if err != nil {
		return err
	}
	v := values(list)
	now := v.number()
	for _, i := range at {
		st := storage.Stats{Queue: queues[i]}
		for _, state := range storage.States() {
			st.SetSize(state, v.number())
		}
		st.Damaged = v.number()
		until := v.number()
		st.Paused = until != 0
		if until > 0 {
			st.PausedUntil = moment(until)
		}
		if rest := v.number(); rest > 0 {
			st.Rests = moment(rest)
		}
		st.Totals = storage.Totals{
			Enqueued: v.number(), Requeued: v.number(), Completed: v.number(), Dead: v.number(),
			Cancelled: v.number(), Deleted: v.number(), Failed: v.number(), Crashed: v.number(),
			Evicted: v.number(),
		}
		st.Declined = kindSizes(v.text())
		st.Oldest, st.Partitioned = span(v.number()), v.number()
		limit, come := engine.LimitOf(v.text(), v.text(), []byte(v.text())), now
		if v.number() > 0 {
			come = 0
		}
		if limit != nil {
			st.Limit = limit.Stats(now, come)
			if limit.Damaged {
				st.Damaged++
			}
		}
		stats[i] = st
	}
	if v.bad {
		return errReply
	}
	return nil
}

// kindSizes parses kinds as stats.lua writes them: each followed by a colon, the number of its tasks and a
// comma. It leaves out the parts that it cannot parse.
func kindSizes(text string) []storage.KindSize {
	var all []storage.KindSize
	for one := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		at := strings.LastIndexByte(one, ':')
		if at < 0 {
			continue
		}
		n, _ := strconv.ParseInt(one[at+1:], 10, 64) // 0 if it is no number
		all = append(all, storage.KindSize{Kind: one[:at], Tasks: n})
	}
	return all
}

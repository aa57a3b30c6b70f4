package imports

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

//go:embed scripts/*.lua
var scripts embed.FS

// script reads an embedded script. It panics if the program does not contain the script.
func script(name string) *goredis.Script {
	text, err := scripts.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return goredis.NewScript(string(text))
}

// Asynq moves a queue of asynq into a queue of midge.
type Asynq struct {
	Source   goredis.UniversalClient
	Session  *storage.Session
	From, To string // names of the queues
	Kinds    Kinds
	// Archived moves archived tasks too, as tasks that run at once. Without it they stay.
	Archived bool
	// Gone is set if the storage for which a killed run has set tasks aside no longer exists. Abort then puts
	// these tasks back too.
	Gone bool
	// Done is called after each chunk, if it is not nil.
	Done func(*Report)

	target target
	step   func(name string) error // of tests, to end an import in the middle
}

// The bounds of a chunk, in tasks and bytes, and of a call that puts tasks back. chunkBytes leaves space in
// a Tx for the change of the cursor and for added headers.
const (
	chunkTasks   = 250
	chunkBytes   = storage.MaxTxBytes / 2
	restoreTasks = 500
)

// ErrActive means that tasks of the queue are active in asynq. They would stay behind in asynq if the rest
// moved.
var ErrActive = errors.New("tasks are active in asynq")

// cursor is the payload of the record of an import. It names the chunk that was inserted last.
type cursor struct {
	Chunk    string `json:"chunk"`
	Inserted string `json:"inserted"` // for each task of the chunk, "1" if inserted, else "0"
}

func (a *Asynq) key(name string) string { return "asynq:{" + a.From + "}:" + name }

func (a *Asynq) taskPrefix() string { return a.key("t:") }

// lists returns the keys of the lists of the queue.
func (a *Asynq) lists() []string {
	return []string{a.key("pending"), a.key("scheduled"), a.key("retry"), a.key("archived")}
}

// Check returns a *[storage.InvalidError] if asynq does not know the queue, or if the name of midge's queue
// is not valid. It changes nothing.
func (a *Asynq) Check(ctx context.Context) error {
	if err := storage.CheckName("queue name", a.To); err != nil {
		return err
	}
	known, err := a.Source.SIsMember(ctx, "asynq:queues", a.From).Result()
	if err != nil {
		return fmt.Errorf("read asynq: %w", err)
	}
	if !known {
		return storage.Invalid("queue of asynq", a.From, "one that asynq knows")
	}
	return nil
}

// pause pauses the queue of asynq. It returns an [ErrActive] if tasks of the queue are still active.
func (a *Asynq) pause(ctx context.Context) error {
	if err := a.Source.SetNX(ctx, a.key("paused"), time.Now().Unix(), 0).Err(); err != nil {
		return fmt.Errorf("pause queue %s of asynq: %w", a.From, err)
	}
	active, err := a.Source.LLen(ctx, a.key("active")).Result()
	if err != nil {
		return fmt.Errorf("read asynq: %w", err)
	}
	if active > 0 {
		return fmt.Errorf("%w: %d of queue %s", ErrActive, active, a.From)
	}
	return nil
}

// Run moves the tasks. It pauses the queue of asynq and leaves it paused. A second run continues where a
// killed run stopped, and moves the tasks that were enqueued meanwhile. The error is an [ErrActive] if
// tasks are active, and a *[TargetError] if a killed run has set tasks aside for another queue or storage.
func (a *Asynq) Run(ctx context.Context) (*Report, error) {
	report := newReport()
	if err := a.Check(ctx); err != nil {
		return report, err
	}
	if err := a.pause(ctx); err != nil {
		return report, err
	}
	if err := a.aim(ctx); err != nil {
		return report, err
	}
	described, err := a.Session.Storage().Describe(ctx)
	if err != nil {
		return report, err
	}
	for {
		record, more, err := a.chunk(ctx, chunkTasks, described.Limits, report)
		if err != nil {
			return report, err
		}
		if !more {
			return report, a.end(ctx, record)
		}
		if a.Done != nil {
			a.Done(report)
		}
	}
}

// Abort ends an import that was killed, whichever queue of midge it moved tasks to. It puts the tasks that
// were not inserted back into asynq, and resumes the queue of asynq. Inserted tasks stay in midge.
func (a *Asynq) Abort(ctx context.Context) error {
	if err := a.Check(ctx); err != nil {
		return err
	}
	if err := a.Resume(ctx); err != nil {
		return err
	}
	none := *a
	none.Kinds = nil // so no task of a chunk that is set aside is inserted
	for {
		record, more, err := none.chunk(ctx, 0, storage.Limits{}, newReport())
		if err != nil {
			return err
		}
		if !more {
			if err := a.end(ctx, record); err != nil {
				return err
			}
			return a.Source.Del(ctx, a.key("paused")).Err()
		}
	}
}

// end puts the tasks that stay back into asynq, and deletes the record of the import unless another process
// uses it.
func (a *Asynq) end(ctx context.Context, record storage.Task) error {
	if err := a.restore(ctx); err != nil {
		return err
	}
	if err := a.at("restored"); err != nil {
		return err
	}
	_, err := a.Session.ApplyOne(ctx, storage.Tx{Deletes: []storage.Delete{{
		Ref:     record.Ref,
		Version: record.Version,
	}}})
	if dependency := (*storage.DependencyError)(nil); errors.As(err, &dependency) {
		return nil
	}
	return err
}

// at calls the hook of a test, which may end the import at a named step.
func (a *Asynq) at(name string) error {
	if a.step == nil {
		return nil
	}
	return a.step(name)
}

// chunk moves one chunk of no more than most tasks. If most is 0, it moves only a chunk that is set aside
// already. more reports whether there was a chunk. record is the record of the import as it was before.
func (a *Asynq) chunk(
	ctx context.Context, most int, limits storage.Limits, report *Report,
) (record storage.Task, more bool, err error) {
	// Read the cursor before the chunk: if the Tx then finds the cursor unchanged, no other process has
	// inserted the chunk in between.
	record, said, err := a.cursor(ctx)
	if err != nil {
		return record, false, err
	}
	staged, err := a.stage(ctx, most)
	if err != nil || len(staged.tasks) == 0 {
		return record, false, err
	}
	if err := a.check(staged.name); err != nil {
		return record, false, err
	}
	if err := a.at("staged"); err != nil {
		return record, false, err
	}
	if said.Chunk != staged.name {
		said, err = a.insert(ctx, record, staged, limits, report)
		var dependency *storage.DependencyError
		if errors.As(err, &dependency) && (len(dependency.Stale) > 0 || len(dependency.Missing) > 0) {
			return record, true, nil // another process was faster; read again
		}
		if err != nil {
			return record, false, err
		}
	}
	if err := a.at("inserted"); err != nil {
		return record, false, err
	}
	if err := a.finish(ctx, staged.name, said.Inserted); err != nil {
		return record, false, err
	}
	return record, true, a.at("finished")
}

var stage, finish, restore = script("stage"), script("finish"), script("restore")

// staged is a chunk that was set aside.
type staged struct {
	name  string
	tasks []stagedTask
}

type stagedTask struct {
	list    string // p, s, r or a: pending, scheduled, retry or archived
	due     time.Time
	message []byte
}

// stage sets a chunk aside, or returns the chunk that is set aside already.
func (a *Asynq) stage(ctx context.Context, most int) (staged, error) {
	archived := "0"
	if a.Archived {
		archived = "1"
	}
	keys := append(a.lists(), a.key("active"), a.key("paused"), a.key("midge:staged"), a.key("midge:chunk"))
	found, err := stage.Run(ctx, a.Source, keys, a.target.chunkName(), most, chunkBytes, a.taskPrefix(),
		archived).StringSlice()
	switch {
	case err != nil && strings.Contains(err.Error(), "MIDGEACTIVE"):
		return staged{}, fmt.Errorf("%w: queue %s", ErrActive, a.From)
	case err != nil && strings.Contains(err.Error(), "MIDGERUNNING"):
		return staged{}, fmt.Errorf("somebody resumed queue %s of asynq during the import", a.From)
	case err != nil:
		return staged{}, fmt.Errorf("take a chunk from asynq: %w", err)
	}
	s := staged{name: found[0]}
	for i := 1; i+1 < len(found); i += 2 {
		list, rest, _ := strings.Cut(found[i], " ")
		score, _, _ := strings.Cut(rest, " ")
		task := stagedTask{list: list, message: []byte(found[i+1])}
		if at, err := strconv.ParseFloat(score, 64); err == nil && (list == "s" || list == "r") {
			task.due = time.UnixMicro(int64(math.Round(at * 1e6)))
		}
		s.tasks = append(s.tasks, task)
	}
	return s, nil
}

// insert inserts the tasks of a chunk, and has the cursor name the chunk, in one Tx.
func (a *Asynq) insert(
	ctx context.Context, record storage.Task, s staged, limits storage.Limits, report *Report,
) (cursor, error) {
	taken := make(map[string]bool) // ids that other tasks have
	for {
		tx, said, chunk := a.tx(record, s, limits, taken)
		_, err := a.Session.ApplyOne(ctx, tx)
		var dependency *storage.DependencyError
		if errors.As(err, &dependency) && len(dependency.Colliding) > 0 {
			for _, c := range dependency.Colliding {
				taken[c.Ref.ID] = true
			}
			continue
		}
		if err == nil {
			report.add(chunk)
		}
		return said, err
	}
}

// tx makes the Tx that inserts a chunk, with the new cursor and the counts of the chunk.
func (a *Asynq) tx(
	record storage.Task, s staged, limits storage.Limits, taken map[string]bool,
) (storage.Tx, cursor, *Report) {
	var tx storage.Tx
	said, report, within := cursor{Chunk: s.name}, newReport(), make(map[string]bool)
	for _, task := range s.tasks {
		in, typ, reason := a.convert(task, limits)
		if reason == "" && (taken[in.Ref.ID] || within[in.Ref.ID]) {
			reason = "another task of queue " + a.To + " has its id"
		}
		if reason != "" {
			report.left(typ, reason)
			said.Inserted += "0"
			continue
		}
		report.moved(typ, in.Ref)
		within[in.Ref.ID] = true
		tx.Inserts = append(tx.Inserts, in)
		said.Inserted += "1"
	}
	text, _ := json.Marshal(said) //nolint:errchkjson // cannot fail: two texts
	ch := storage.Change{Ref: record.Ref, Version: record.Version, Encoding: "json", Payload: text}
	if record.State != storage.Scheduled { // somebody has cancelled it, or run it now
		ch.At, ch.Requeue = payload.Never, record.State.Ended()
	}
	tx.Changes = []storage.Change{ch}
	return tx, said, report
}

// convert makes the insert of a task. reason is why the task cannot be inserted, "" if it can.
func (a *Asynq) convert(task stagedTask, limits storage.Limits) (in storage.Insert, typ, reason string) {
	m, err := readMessage(task.message)
	if err != nil {
		return in, "?", err.Error()
	}
	kind := a.Kinds.Of(m.typ)
	if kind == "" {
		return in, m.typ, unknownType
	}
	in, reason = m.insert(a.To, kind, task.due, limits)
	return in, m.typ, reason
}

// cursor reads the record of this import, and creates it if there is none.
func (a *Asynq) cursor(ctx context.Context) (storage.Task, cursor, error) {
	name, err := a.name(ctx)
	if err != nil {
		return storage.Task{}, cursor{}, err
	}
	ref := storage.Ref{Queue: a.To, ID: name}
	t, err := a.record(ctx, ref, []byte(`{"chunk":"","inserted":""}`))
	if err != nil {
		return t, cursor{}, err
	}
	var said cursor
	if err := json.Unmarshal(t.Payload, &said); err != nil {
		return t, said, fmt.Errorf("the record %s of the import cannot be read: %w", ref, err)
	}
	return t, said, nil
}

// name returns the name of this import. The name is stored in asynq's Redis, so that it does not depend on
// the address by which a run reaches that Redis. It stays there, because a process that was frozen may come
// back.
func (a *Asynq) name(ctx context.Context) (string, error) {
	key := a.key("midge:import")
	if err := a.Source.SetNX(ctx, key, "import."+storage.NewID(), 0).Err(); err != nil {
		return "", fmt.Errorf("write to asynq: %w", err)
	}
	name, err := a.Source.Get(ctx, key).Result()
	if err != nil {
		return "", fmt.Errorf("read asynq: %w", err)
	}
	return name, nil
}

// restore puts the tasks that stay back into the lists of asynq.
func (a *Asynq) restore(ctx context.Context) error {
	for {
		n, err := restore.Run(ctx, a.Source, append(a.lists(), a.key("midge:left")), restoreTasks).Int()
		if err != nil {
			return fmt.Errorf("put tasks back into asynq: %w", err)
		}
		if n < restoreTasks {
			return nil
		}
	}
}

// Plan returns the report that Run would return, and changes nothing. It does not count the tasks that are
// set aside.
func (a *Asynq) Plan(ctx context.Context) (*Report, error) {
	report := newReport()
	described, err := a.Session.Storage().Describe(ctx)
	if err != nil {
		return report, err
	}
	for i, list := range a.lists() {
		if i == 3 && !a.Archived {
			break
		}
		for from := int64(0); ; from += chunkTasks {
			ids, err := a.page(ctx, list, i == 0, from)
			if err != nil {
				return report, err
			}
			if len(ids) == 0 {
				break
			}
			if err := a.plan(ctx, ids, described.Limits, report); err != nil {
				return report, err
			}
		}
	}
	return report, nil
}

// page reads a page of ids from a list or from a sorted set.
func (a *Asynq) page(ctx context.Context, key string, isList bool, from int64) ([]string, error) {
	if isList {
		return a.Source.LRange(ctx, key, from, from+chunkTasks-1).Result()
	}
	return a.Source.ZRange(ctx, key, from, from+chunkTasks-1).Result()
}

func (a *Asynq) plan(ctx context.Context, ids []string, limits storage.Limits, report *Report) error {
	pipe := a.Source.Pipeline()
	messages := make([]*goredis.StringCmd, len(ids))
	for i, id := range ids {
		messages[i] = pipe.HGet(ctx, a.taskPrefix()+id, "msg")
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, goredis.Nil) {
		return fmt.Errorf("read asynq: %w", err)
	}
	for _, m := range messages {
		in, typ, reason := a.convert(stagedTask{message: []byte(m.Val())}, limits)
		if reason != "" {
			report.left(typ, reason)
		} else {
			report.moved(typ, in.Ref)
		}
	}
	return nil
}

// Stays counts the tasks that an import does not examine: archived and completed tasks, and tasks that wait
// in groups.
func (a *Asynq) Stays(ctx context.Context) (archived, completed, grouped int64, err error) {
	if archived, err = a.Source.ZCard(ctx, a.key("archived")).Result(); err != nil {
		return 0, 0, 0, err
	}
	if completed, err = a.Source.ZCard(ctx, a.key("completed")).Result(); err != nil {
		return 0, 0, 0, err
	}
	groups, err := a.Source.SMembers(ctx, a.key("groups")).Result()
	if err != nil {
		return 0, 0, 0, err
	}
	for _, group := range groups {
		n, err := a.Source.ZCard(ctx, a.key("g:"+group)).Result()
		if err != nil {
			return 0, 0, 0, err
		}
		grouped += n
	}
	return archived, completed, grouped, nil
}

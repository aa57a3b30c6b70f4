package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func insertRules() []rule {
	return []rule{
		state("insert/fields", insertFields,
			"An inserted task reads as it was given, waiting, with a positive version and the time of its making."),
		state("insert/delay", insertDelay,
			"An insert with a Delay is scheduled until that long from the storage's now."),
		state("insert/at", insertAt,
			"An insert At a moment is scheduled until exactly then, in whole microseconds."),
		state("insert/past", insertPast,
			"An insert At a past moment is due now."),
		state("insert/repeated", insertRepeated,
			"An insert whose Ref exists with the same kind, encoding and payload succeeds with the existing task."),
		state("insert/repeated in any state", insertRepeatedInAnyState,
			"The existing task that an insert finds is told in whatever state it is."),
		state("insert/collision", insertCollision,
			"An insert whose Ref exists with another kind, encoding or payload is a collision."),
		state("insert/id free after the record", insertAfterTheRecord,
			"A record guards its id only while it lives, and versions of a later task are higher."),
		state("insert/many", insertMany,
			"A Tx of 1,000 inserts is one step, placed in order."),
		state("insert/cursor repeated", insertCursorRepeated,
			"A cursor's insert is a repeat where the Declaration is the same, else a collision."),
		state("insert/payload of any bytes", insertAnyBytes,
			"Payload bytes of any value come back as they were given, none too."),
		state("insert/headers of any text", insertAnyHeaders,
			"Headers come back as they were given."),
		state("insert/longest names", insertLongestNames,
			"Names of 128 bytes of every character permitted work everywhere."),
		state("insert/far future", insertFarFuture,
			"A moment of the year 2199 is represented exactly."),
	}
}

func insertFields(r *rig) {
	j := job("a")
	j.Headers = map[string]string{"trace": "1"}
	j.Priority, j.MaxRetries, j.CrashLimit = -9, 7, 5
	j.Timeout, j.Keep = time.Minute, storage.Keep{For: time.Hour, UntilRead: true}
	j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow, For: time.Hour}
	from := r.now()
	p := r.insert(j)[0]
	t := r.read("a")
	if t.Version < 1 {
		r.Fatalf("version: got %d, want a positive number", t.Version)
	}
	r.want("placed", p, storage.Placed{Ref: in("a"), Version: t.Version, State: storage.Waiting})
	r.between("Created", t.Created, from, r.now())
	r.want("payload", string(t.Payload), string(j.Payload))
	r.want("headers", t.Headers, j.Headers)
	r.want("times of what it is not", [3]bool{t.Ended.IsZero(), t.Expires.IsZero(), t.LeaseUntil.IsZero()},
		[3]bool{true, true, true})
	want := storage.Task{
		Ref: in("a"), Kind: "job", Encoding: "raw", State: storage.Waiting, Version: t.Version, Priority: -9,
		MaxRetries: 7, CrashLimit: 5, Timeout: time.Minute, Keep: j.Keep, Unique: j.Unique,
	}
	got := t
	got.Payload, got.Headers, got.Created, got.Due = nil, nil, time.Time{}, time.Time{}
	got.Ended, got.Expires, got.LeaseUntil = time.Time{}, time.Time{}, time.Time{}
	if len(got.Attempts) == 0 {
		got.Attempts = nil
	}
	r.want("the rest", lean(got), want)
}

// lean makes the byte slices of t nil that may be nil or empty.
func lean(t storage.Task) storage.Task {
	for _, b := range []*[]byte{&t.Payload, &t.Result, &t.Progress, &t.Checkpoint} {
		if len(*b) == 0 {
			*b = nil
		}
	}
	return t
}

func insertDelay(r *rig) {
	from := r.now()
	p := r.insert(delayed("a", time.Hour))[0]
	r.want("placed", p.State, storage.Scheduled)
	t := r.is("a", storage.Scheduled)
	r.between("Due", t.Due, from.Add(time.Hour), r.now().Add(time.Hour))
	r.want("claimed", r.drain(), []string{})
}

func insertAt(r *rig) {
	j := job("a")
	j.At = r.now().Add(time.Hour).Truncate(time.Millisecond).Add(123456 * time.Nanosecond)
	r.want("placed", r.insert(j)[0].State, storage.Scheduled)
	if due := r.is("a", storage.Scheduled).Due; !due.Equal(j.At.Truncate(time.Microsecond)) {
		r.Fatalf("Due: got %v, want %v", due, j.At.Truncate(time.Microsecond))
	}
	r.want("claimed", r.drain(), []string{})
}

func insertPast(r *rig) {
	for id, at := range map[string]time.Time{
		"a": r.now().Add(-time.Hour), "b": time.Unix(1, 0), "c": time.Unix(-9e9, 0),
	} {
		j := job(id)
		j.At = at
		r.want("placed", r.insert(j)[0].State, storage.Waiting)
		r.want("claimed", r.drain(), []string{id})
	}
}

func insertRepeated(r *rig) {
	r.add("a")
	t := r.read("a")
	again := job("a")
	again.Priority, again.Headers, again.Delay = 5, map[string]string{"other": "x"}, time.Hour
	r.unchanged(func() {
		p := r.insert(again, job("b"))
		r.want("placed", p[0],
			storage.Placed{Ref: in("a"), Version: t.Version, State: storage.Waiting, Existing: true})
		r.want("Existing of a new task", p[1].Existing, false)
	}, "a")
	s := r.stats()
	r.want("enqueued, waiting", [2]int64{s.Totals.Enqueued, s.Waiting}, [2]int64{2, 2})
}

func insertRepeatedInAnyState(r *rig) {
	r.holding(job("pending"))
	r.insert(delayed("scheduled", time.Hour))
	r.settle(r.holding(job("retry")), storage.Settle{Outcome: storage.Fail, Delay: time.Hour})
	r.end(r.holding(kept("completed")), storage.Complete)
	r.end(r.holding(kept("cancelled")), storage.Cancel)
	r.bury(job("dead"))
	r.add("waiting")
	for _, s := range storage.States()[:7] {
		id := string(s)
		p := r.insert(job(id))[0]
		r.want("placed over "+id, p,
			storage.Placed{Ref: in(id), Version: r.is(id, s).Version, State: s, Existing: true})
	}
}

func insertCollision(r *rig) {
	r.add("a")
	for what, alter := range map[string]func(*storage.Insert){
		"kind":       func(j *storage.Insert) { j.Kind = "other" },
		"encoding":   func(j *storage.Insert) { j.Encoding = "other" },
		"payload":    func(j *storage.Insert) { j.Payload = []byte("other") },
		"no payload": func(j *storage.Insert) { j.Payload = nil },
	} {
		j := job("a")
		alter(&j)
		r.unchanged(func() {
			dep := r.refuse(storage.Tx{Inserts: []storage.Insert{j, job("b")}})
			r.want("another "+what, *dep, storage.DependencyError{
				Colliding: []storage.Collision{{Ref: in("a"), Holder: in("a")}},
			})
		}, "a", "b")
	}
}

func insertAfterTheRecord(r *rig) {
	h := r.holding(job("a"))
	r.end(h, storage.Complete)
	j := job("a")
	j.Kind = "other"
	p := r.insert(j)[0]
	r.want("Existing", p.Existing, false)
	if p.Version <= h.Version {
		r.Fatalf("version of a later task: got %d, want more than %d", p.Version, h.Version)
	}
}

func insertMany(r *rig) {
	ins := make([]storage.Insert, storage.MaxTxOps)
	want := make([]string, len(ins))
	for i := range ins {
		ins[i] = job("t" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10)))
		want[i] = ins[i].Ref.ID
	}
	for i, p := range r.insert(ins...) {
		r.want("placed", p.Ref, ins[i].Ref)
	}
	r.want("waiting", r.stats().Waiting, int64(len(ins)))
	r.want("claimed", r.drain(), want)
}

func insertCursorRepeated(r *rig) {
	c := cursor("cursor.c", time.Time{})
	r.insert(c)
	again := cursor("cursor.c", r.now())
	again.Cursor.Last = r.now().Truncate(time.Microsecond)
	r.unchanged(func() {
		r.want("Existing", r.insert(again)[0].Existing, true)
		again.Cursor.Declaration = "other"
		dep := r.refuse(storage.Tx{Inserts: []storage.Insert{again}})
		r.want("colliding", dep.Colliding, []storage.Collision{{Ref: c.Ref, Holder: c.Ref}})
	}, "cursor.c")
}

func insertAnyBytes(r *rig) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for id, payload := range map[string][]byte{
		"all": all, "nul": {0}, "nil": nil, "empty": {}, "comma": []byte(`",{}[]:\`),
	} {
		j := job(id)
		j.Payload = payload
		h := r.holding(j)
		r.want("payload claimed", string(h.Payload), string(payload))
		r.want("payload read", string(r.read(id).Payload), string(payload))
		r.want("Existing of the same", r.insert(j)[0].Existing, true)
	}
}

func insertAnyHeaders(r *rig) {
	j := job("a")
	j.Headers = map[string]string{
		"é": "Grüße ☃ \"quoted\"\n\ttab", "empty": "", "a:b,c=d": "{}[]\\", " ": " ",
	}
	h := r.holding(j)
	r.want("headers claimed", h.Headers, j.Headers)
	r.want("headers read", r.read("a").Headers, j.Headers)
}

func insertLongestNames(r *rig) {
	name := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
	for len(name) < storage.MaxName {
		name += "."
	}
	j := job("a")
	j.Ref, j.Kind, j.Encoding = storage.Ref{Queue: name, ID: name}, name, name
	j.Unique = storage.Unique{Key: name, Mode: storage.UniqueLife}
	r.insert(j)
	req := ask(1)
	req.Runner, req.Queues = name, []storage.ClaimQueue{{Name: name}}
	h := r.hold(req, 1)[0]
	r.want("claimed", [4]string{h.Queue, h.ID, h.Kind, h.Runner}, [4]string{name, name, name, name})
	r.end(h, storage.Release)
	t, err := r.store.Task(r.ctx, j.Ref)
	r.must("read", err)
	r.want("state", t.State, storage.Waiting)
}

func insertFarFuture(r *rig) {
	j := job("a")
	j.At = time.Date(2199, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	r.insert(j)
	if due := r.read("a").Due; !due.Equal(j.At) {
		r.Fatalf("Due: got %v, want %v", due, j.At)
	}
}

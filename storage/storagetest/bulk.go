package storagetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/midgehq/midge/storage"
)

// bulkRules test calls of many inserts, which a storage may carry out in a way of its own. The
// rules of single inserts hold for them too.
func bulkRules() []rule {
	return []rule{
		state("bulk/fields", bulkFields,
			"Each of hundreds of inserts of a call reads as it was given, and is where it belongs."),
		state("bulk/what is there", bulkExisting,
			"Of hundreds of inserts of a call those whose task is there succeed with it, and the others are made."),
		state("bulk/repeated", bulkRepeated,
			"A call of hundreds of inserts that is repeated gives its first outcome, whatever became of the tasks."),
		state("bulk/in one Tx", bulkInOneTx,
			"A Tx of hundreds of inserts beside a change happens whole or not at all. Tasks that are there stay."),
		state("bulk/wakes", bulkWakes,
			"A call of hundreds of scheduled inserts wakes who waits for a later moment."),
		state("bulk/wakes for what is due by then", bulkWakesDue,
			"A call of hundreds of inserts that are due when it has happened, or before, wakes who waits."),
	}
}

const bulkSize = 240

// bulk makes jobs of many sorts: two thirds wait, and a seventh belong to the queue side.
func bulk(now time.Time) (jobs []storage.Insert) {
	for i := range bulkSize {
		j := job(fmt.Sprintf("t%03d", i))
		j.Priority, j.MaxRetries, j.CrashLimit = i%19-9, i%21, 1+i%5
		switch i % 6 {
		case 1:
			j.Delay = time.Hour + time.Duration(i)*time.Second
		case 2:
			j.At = now.Add(time.Hour + time.Duration(i)*time.Second).Truncate(time.Microsecond)
		case 3:
			j.At = now.Add(-time.Duration(i) * time.Second)
		}
		if i%7 == 3 {
			j.Ref.Queue = sideQueue
		}
		if i%11 == 4 {
			j.Headers, j.Timeout = map[string]string{"number": strconv.Itoa(i)}, time.Duration(i)*time.Second
			j.Keep = storage.Keep{For: time.Duration(i) * time.Minute, UntilRead: i%2 == 0}
		}
		if i%13 == 5 {
			j.Ref.ID, j.Payload = storage.NewID(), make([]byte, 1000*i)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// each puts every insert in a Tx of its own.
func each(jobs []storage.Insert) (txs []storage.Tx) {
	for _, j := range jobs {
		txs = append(txs, inserting(j))
	}
	return txs
}

func bulkFields(r *rig) {
	jobs := bulk(r.now())
	waiting := [10][]string{} // of main, by priority
	for i, a := range r.called(r.first(), each(jobs)...) {
		r.must("insert", a.Err)
		j := jobs[i]
		state := storage.Waiting
		if later := i%6 == 1 || i%6 == 2; later {
			state = storage.Scheduled
		} else if j.Ref.Queue == mainQueue && j.Priority >= 0 {
			waiting[j.Priority] = append(waiting[j.Priority], j.Ref.ID)
		}
		t, err := r.store.Task(r.ctx, j.Ref)
		r.must("read", err)
		r.want("placed", a.Inserted[0], storage.Placed{Ref: j.Ref, Version: t.Version, State: state})
		r.reads(t, j, state)
	}
	slices.Reverse(waiting[:]) // the highest priority first
	want := slices.Concat(waiting[:]...)
	r.want("claimed first", ids(r.claim(ask(len(want))).Tasks), want)
	main := r.stats()
	r.want("enqueued and there", [2]int64{main.Totals.Enqueued, main.Live()}, [2]int64{206, 206})
}

// reads fails the rule if a task is not as it was inserted.
func (r *rig) reads(t storage.Task, j storage.Insert, state storage.State) {
	r.Helper()
	r.want("payload of "+j.Ref.ID, string(t.Payload), string(j.Payload))
	if len(j.Headers) > 0 {
		r.want("headers of "+j.Ref.ID, t.Headers, j.Headers)
	}
	if state == storage.Scheduled {
		due := j.At
		if j.Delay > 0 {
			due = t.Created.Add(j.Delay)
		}
		r.want("due of "+j.Ref.ID, t.Due.UnixMicro(), due.UnixMicro())
	}
	type fields struct {
		Ref                              storage.Ref
		Kind, Encoding                   string
		State                            storage.State
		Priority, MaxRetries, CrashLimit int
		Timeout                          time.Duration
		Keep                             storage.Keep
	}
	r.want("fields",
		fields{t.Ref, t.Kind, t.Encoding, t.State, t.Priority, t.MaxRetries, t.CrashLimit, t.Timeout, t.Keep},
		fields{j.Ref, j.Kind, j.Encoding, state, j.Priority, j.MaxRetries, j.CrashLimit, j.Timeout, j.Keep})
}

func bulkExisting(r *rig) {
	r.end(r.holding(kept("ended")), storage.Complete)
	r.add("waiting")
	jobs := make([]storage.Insert, bulkSize)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("t%03d", i))
	}
	jobs[20], jobs[120], jobs[220] = kept("ended"), job("waiting"), jobs[7]
	other := job("waiting")
	other.Kind = "other"
	jobs[150] = other
	for i, a := range r.called(r.first(), each(jobs)...) {
		if i == 150 {
			r.want("a collision", a.Err != nil, true)
			continue
		}
		r.must("insert", a.Err)
		r.want(fmt.Sprintf("insert %d was there", i), a.Inserted[0].Existing, i == 20 || i == 120 || i == 220)
		r.want("state", a.Inserted[0].State == storage.Completed, i == 20)
	}
	want := []string{"waiting"}
	for i := range jobs {
		if i != 20 && i != 120 && i != 150 && i != 220 {
			want = append(want, jobs[i].Ref.ID)
		}
	}
	r.want("claimed", r.drain(), want)
	r.want("enqueued", r.stats().Totals.Enqueued, int64(len(want)+1))
}

func bulkRepeated(r *rig) {
	call, txs := r.first(), each(bulk(r.now()))
	once := r.called(call, txs...)
	r.want("repeated", r.called(call, txs...), once)
	for _, h := range r.hold(ask(20), 20) {
		r.end(h, storage.Complete)
	}
	r.want("repeated when some have ended", r.called(call, txs...), once)
	if other, ok := r.again(); ok {
		r.want("repeated through another handle", other.called(call, txs...), once)
	}
	s := r.stats()
	r.want("enqueued, completed and there", [3]int64{s.Totals.Enqueued, s.Totals.Completed, s.Live()},
		[3]int64{206, 20, 186})
}

func bulkInOneTx(r *rig) {
	jobs := make([]storage.Insert, bulkSize)
	line := [2][]string{} // of the other tasks, by priority
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("t%03d", i))
		switch jobs[i].Priority = i % 2; i % 50 {
		case 20:
			jobs[i].Timeout = time.Minute
		case 30:
			jobs[i].Delay = time.Hour
		}
		if i != 60 && i != 160 && i%50 != 30 {
			line[i%2] = append(line[i%2], jobs[i].Ref.ID)
		}
	}
	jobs[160] = kept("ended")
	r.end(r.holding(kept("ended")), storage.Complete)
	r.insert(delayed("marker", time.Hour), jobs[60])
	taken, free := job("taken"), jobs[200]
	r.insert(taken)
	taken.Kind = "other"
	step := func() storage.Tx {
		return storage.Tx{Inserts: slices.Clone(jobs), Changes: []storage.Change{{
			Ref: in("marker"), Version: r.read("marker").Version, Encoding: "raw", Payload: []byte("to here"),
		}}}
	}
	wrong := step()
	wrong.Inserts[200] = taken
	before := r.stats()
	r.want("collisions", r.refuse(wrong).Colliding, []storage.Collision{{Ref: taken.Ref, Holder: taken.Ref}})
	wrong.Inserts[200], wrong.Changes[0].Version = free, 1
	r.want("stale", len(r.refuse(wrong).Stale), 1)
	r.want("stats after refusals", r.stats(), before)
	call, tx := r.first(), step()
	once := r.called(call, tx)
	r.must("insert", once[0].Err)
	for i, p := range once[0].Inserted {
		t, err := r.store.Task(r.ctx, jobs[i].Ref)
		r.must("read", err)
		was := i == 60 || i == 160
		r.want("placed", p, storage.Placed{Ref: t.Ref, Version: t.Version, State: t.State, Existing: was})
	}
	r.want("changed", once[0].Changed[0].Version, r.read("marker").Version)
	r.want("marker", string(r.read("marker").Payload), "to here")
	r.want("claimed", r.drain(), append(append(line[1], "t060", "taken"), line[0]...))
	r.want("repeated", r.called(call, tx), once)
}

func bulkWakes(r *rig) {
	r.insert(delayed("first", 10*time.Hour))
	r.wakes("hundreds of scheduled inserts", func(r *rig) {
		jobs := make([]storage.Insert, bulkSize)
		for i := range jobs {
			jobs[i] = delayed(fmt.Sprintf("t%03d", i), time.Hour-time.Duration(i)*time.Second)
		}
		r.called(r.first(), each(jobs)...)
	})
}

func bulkWakesDue(r *rig) {
	r.wakes("hundreds of inserts that are soon due", func(r *rig) {
		jobs := make([]storage.Insert, 2*bulkSize)
		for i := range jobs {
			jobs[i] = delayed(fmt.Sprintf("t%03d", i), time.Microsecond)
		}
		r.called(r.first(), each(jobs)...)
	})
}

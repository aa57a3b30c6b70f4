package storagetest

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

func limitRules() []rule {
	return []rule{
		state("limits/insert", limitInsert,
			"An insert beyond a limit is an InvalidError and changes nothing; one at the limit is stored.",
		).under(storage.Limits{MaxPayload: 1000}),
		state("limits/payload by default", limitDefault,
			"A payload is at most 1 MiB unless the limit is raised."),
		state("limits/payload raised", limitRaised,
			"The payload limit can be raised to 16 MiB, beyond the bytes of a Tx where it is alone.",
		).under(storage.Limits{MaxPayload: storage.MaxPayloadCap}),
		state("limits/transaction", limitTx,
			"A Tx has 1 to 1,000 operations and at most 4 MiB, and names each task once."),
		state("limits/change", limitChange,
			"A change, delete, dependency or settle beyond a limit is an InvalidError and changes nothing.",
		).under(storage.Limits{MaxPayload: 1000}),
		state("limits/claim", limitClaim,
			"A Claim beyond a limit is an InvalidError and takes nothing."),
		state("limits/extend", limitExtend,
			"An Extend beyond a limit is an InvalidError and writes nothing.",
		).under(storage.Limits{MaxPayload: 1000}),
		state("limits/cursor", limitCursor,
			"The texts of a cursor are valid UTF-8 without NUL, of 64 KiB together, else it is an InvalidError."),
		state("limits/wait", limitWait,
			"A Wait names 1 to 1,000 queues by valid names, else it is an InvalidError and returns at once."),
		state("limits/call", limitCall,
			"A Call is zero or has a lane that was opened and a number, else every mutating call with it is an "+
				"InvalidError and does nothing."),
		state("limits/reads and settings", limitReads,
			"Reads and settings beyond a limit are an InvalidError."),
		state("limits/names", limitNames,
			"A queue, a kind and an id may have a colon and each other character of CheckName's."),
		state("limits/whole call", limitWholeCall,
			"Limits are checked before any I/O: one invalid Tx and nothing of the call happens, nor is "+
				"it remembered."),
	}
}

// alter is one change of a good value, to a value beyond a limit or just within it.
type alter[T any] struct {
	what  string
	alter func(*T)
}

// badInserts returns inserts just beyond a limit, beginning with the limits of a task's names.
func badInserts() []alter[storage.Insert] {
	long := strings.Repeat("a", storage.MaxName)
	return append([]alter[storage.Insert]{
		{"an empty id", func(j *storage.Insert) { j.Ref.ID = "" }},
		{"a long id", func(j *storage.Insert) { j.Ref.ID = long + "a" }},
		{"an id of other characters", func(j *storage.Insert) { j.Ref.ID = "a/b" }},
		{"an id of a cursor", func(j *storage.Insert) { j.Ref.ID = storage.CursorPrefix + "a" }},
		{"an empty queue", func(j *storage.Insert) { j.Ref.Queue = "" }},
		{"a queue of other characters", func(j *storage.Insert) { j.Ref.Queue = "{a}" }},
		{"a long queue", func(j *storage.Insert) { j.Ref.Queue = long + "a" }},
		{"an empty kind", func(j *storage.Insert) { j.Kind = "" }},
		{"no encoding", func(j *storage.Insert) { j.Encoding = "" }},
	}, badValues()...)
}

func badValues() []alter[storage.Insert] {
	return []alter[storage.Insert]{
		{"a payload too big", func(j *storage.Insert) { j.Payload = make([]byte, 1001) }},
		{"headers too big", func(j *storage.Insert) {
			j.Headers = map[string]string{"x": strings.Repeat("a", storage.MaxHeaderBytes)}
		}},
		{"a header with no name", func(j *storage.Insert) { j.Headers = map[string]string{"": "a"} }},
		{"a header's name that is no text", func(j *storage.Insert) { j.Headers = map[string]string{"\xff": "a"} }},
		{"a header's name with NUL", func(j *storage.Insert) { j.Headers = map[string]string{"\x00": "a"} }},
		{"a header that is no text", func(j *storage.Insert) { j.Headers = map[string]string{"x": "\xff"} }},
		{"a header with NUL", func(j *storage.Insert) { j.Headers = map[string]string{"x": "a\x00b"} }},
		{"a priority too high", func(j *storage.Insert) { j.Priority = 10 }},
		{"a priority too low", func(j *storage.Insert) { j.Priority = -10 }},
		{"a negative delay", func(j *storage.Insert) { j.Delay = -1 }},
		{"a delay too long", func(j *storage.Insert) { j.Delay = storage.MaxDelay + 1 }},
		{"a moment too far", func(j *storage.Insert) { j.At = time.Date(2200, 1, 1, 0, 0, 1, 0, time.UTC) }},
		{"a moment too early", func(j *storage.Insert) { j.At = time.Date(0, 12, 31, 23, 59, 59, 0, time.UTC) }},
		{"a delay and a moment", func(j *storage.Insert) { j.Delay, j.At = 1, time.Unix(1, 0) }},
		{"negative retries", func(j *storage.Insert) { j.MaxRetries = -1 }},
		{"too many retries", func(j *storage.Insert) { j.MaxRetries = storage.MaxLimit + 1 }},
		{"no crash limit", func(j *storage.Insert) { j.CrashLimit = 0 }},
		{"a crash limit too high", func(j *storage.Insert) { j.CrashLimit = storage.MaxLimit + 1 }},
		{"a negative timeout", func(j *storage.Insert) { j.Timeout = -1 }},
		{"a timeout under 1ms", func(j *storage.Insert) { j.Timeout = time.Millisecond - 1 }},
		{"a negative keep", func(j *storage.Insert) { j.Keep.For = -1 }},
		{"a keep under 1ms", func(j *storage.Insert) { j.Keep.For = time.Millisecond - 1 }},
		{"a cost below none", func(j *storage.Insert) { j.Cost = storage.NoCost - 1 }},
		{"a cost too high", func(j *storage.Insert) { j.Cost = storage.MaxCost + 1 }},
		{"a cost far too high", func(j *storage.Insert) { j.Cost = math.MaxInt32 }},
		{"a key without a mode", func(j *storage.Insert) { j.Unique.Key = "k" }},
		{"a window without a length", func(j *storage.Insert) {
			j.Unique = storage.Unique{Key: "k", Mode: storage.UniqueWindow}
		}},
		{"a choice unknown", func(j *storage.Insert) { j.OnConflict = "replace" }},
	}
}

func limitInsert(r *rig) {
	for _, c := range badInserts() {
		j := job("a")
		c.alter(&j)
		_, err := r.session.Apply(r.ctx, inserting(j, job("b")))
		r.wantInvalid(c.what, err)
		r.gone("b")
	}
	long := strings.Repeat("a", storage.MaxName)
	j := job(long)
	j.Payload = make([]byte, 1000)
	j.Headers = map[string]string{"x": strings.Repeat("a", storage.MaxHeaderBytes-1)}
	j.Priority, j.MaxRetries, j.CrashLimit = 9, storage.MaxLimit, storage.MaxLimit
	j.Delay, j.Timeout, j.Keep.For = storage.MaxDelay, storage.NoTimeout, storage.MaxDelay
	j.Cost = storage.MaxCost
	r.insert(j)
	r.want("payload", len(r.is(long, storage.Scheduled).Payload), 1000)
	r.want("no timeout", r.read(long).Timeout, storage.NoTimeout)
	j = job("short")
	j.Timeout, j.Keep.For, j.Cost = storage.MinSpan, storage.MinSpan, storage.NoCost
	r.insert(j)
	r.want("timeout", r.read("short").Timeout, storage.MinSpan)
}

func limitDefault(r *rig) {
	j := job("a")
	j.Payload = make([]byte, 1<<20+1)
	_, err := r.session.Apply(r.ctx, inserting(j))
	r.wantInvalid("a payload of more than 1 MiB", err)
	j.Payload = j.Payload[1:]
	r.insert(j)
	r.want("payload", len(r.take(ask(1), "a").Payload), 1<<20)
}

func limitRaised(r *rig) {
	j := job("a")
	j.Payload = make([]byte, storage.MaxPayloadCap)
	j.Payload[len(j.Payload)-1] = 1
	h := r.holding(j)
	r.want("payload", [2]int{len(h.Payload), int(h.Payload[len(h.Payload)-1])}, [2]int{storage.MaxPayloadCap, 1})
	r.settle(h, storage.Settle{Outcome: storage.Complete, Result: j.Payload})
	r.want("result", len(r.read("a").Result), storage.MaxPayloadCap)
}

func limitTx(r *rig) {
	ins := make([]storage.Insert, storage.MaxTxOps+1)
	for i := range ins {
		ins[i] = job(fmt.Sprintf("t%d", i))
	}
	big := []storage.Insert{job("a"), job("b"), job("c"), job("d"), job("e")}
	for i := range big {
		big[i].Payload = make([]byte, 1<<20)
	}
	for what, tx := range map[string]storage.Tx{
		"an empty Tx": {}, "1,001 operations": {Inserts: ins}, "5 MiB": {Inserts: big},
		"a task twice": {Inserts: []storage.Insert{job("a"), job("a")}},
		"a task in two operations": {
			Inserts: []storage.Insert{job("a")}, Depends: []storage.Depend{{Ref: in("a"), Version: 1}},
		},
	} {
		_, err := r.session.Apply(r.ctx, tx)
		r.wantInvalid(what, err)
		r.want("enqueued", r.stats().Totals.Enqueued, int64(0))
	}
	r.insert(big[:3]...)
	applied, err := r.session.Apply(r.ctx)
	r.must("apply of nothing", err)
	r.want("apply of nothing", len(applied), 0)
}

func limitChange(r *rig) {
	h := r.holding(job("a"))
	r.add("b")
	for what, tx := range badChanges(h, r.read("b").Version) {
		r.unchanged(func() {
			tx.Inserts = []storage.Insert{job("never")}
			_, err := r.session.Apply(r.ctx, tx)
			r.wantInvalid(what, err)
		}, "a", "b", "never")
	}
	r.settle(h, storage.Settle{Outcome: storage.Complete, Result: make([]byte, 1000)})
}

// badChanges returns changes of the task b, and settles of the claimed task, just beyond a limit.
func badChanges(h held, version int64) map[string]storage.Tx {
	ten := 10
	change := func(ch storage.Change) storage.Tx {
		ch.Ref, ch.Version = in("b"), version
		return storage.Tx{Changes: []storage.Change{ch}}
	}
	settle := func(s storage.Settle) storage.Tx {
		s.Fence = h.Fence
		return storage.Tx{Settles: []storage.Settle{s}}
	}
	return map[string]storage.Tx{
		"no version":              {Changes: []storage.Change{{Ref: in("b"), Now: true}}},
		"a cancel and headers":    change(storage.Change{Cancel: true, Headers: map[string]string{}}),
		"a cancel and a priority": change(storage.Change{Cancel: true, Priority: new(int)}),
		"a cancel and a moment":   change(storage.Change{Cancel: true, Delay: time.Hour}),
		"two moments":             change(storage.Change{Delay: 1, At: time.Unix(1, 0)}),
		"a payload too big":       change(storage.Change{Encoding: "raw", Payload: make([]byte, 1001)}),
		"a payload, no encoding":  change(storage.Change{Payload: []byte("x")}),
		"a priority too high":     change(storage.Change{Priority: &ten}),
		"a cost below none":       change(repriced(storage.NoCost - 1)),
		"a cost too high":         change(repriced(storage.MaxCost + 1)),
		"a cancel and a cost":     change(storage.Change{Cancel: true, Cost: repriced(1).Cost}),
		"now and a delay":         change(storage.Change{Now: true, Delay: 1}),
		"a negative delay":        change(storage.Change{Delay: -1}),
		"a cursor of a task":      change(storage.Change{Cursor: &storage.Cursor{}}),
		"a bad target":            change(storage.Change{Queue: "a b"}),
		"a move and now":          change(storage.Change{Queue: sideQueue, Now: true}),
		"a move and a cancel":     change(storage.Change{Queue: mainQueue, Cancel: true}),
		"a move and a delay":      change(storage.Change{Queue: sideQueue, Delay: time.Hour}),
		"a move and a moment":     change(storage.Change{Queue: sideQueue, At: time.Unix(1, 0)}),
		"a move and a requeue":    change(storage.Change{Queue: sideQueue, Requeue: true}),
		"a requeue and a cancel":  change(storage.Change{Requeue: true, Cancel: true}),
		"a requeue now and later": change(storage.Change{Requeue: true, Now: true, Delay: 1}),
		"from the start, alone":   change(storage.Change{FromStart: true}),
		"from the start, later":   change(storage.Change{FromStart: true, Delay: time.Hour}),
		"a header with NUL":       change(storage.Change{Headers: map[string]string{"x": "a\x00"}}),
		"a delete, no version":    {Deletes: []storage.Delete{{Ref: in("b")}}},
		"a depend, no version":    {Depends: []storage.Depend{{Ref: in("b")}}},
		"an unknown outcome":      settle(storage.Settle{Outcome: "retry"}),
		"a result of a failure":   settle(storage.Settle{Outcome: storage.Fail, Result: []byte("r")}),
		"a result too big":        settle(storage.Settle{Outcome: storage.Complete, Result: make([]byte, 1001)}),
		"a negative retry delay":  settle(storage.Settle{Outcome: storage.Fail, Delay: -1}),
		"a delay of a completion": settle(storage.Settle{Outcome: storage.Complete, Delay: 1}),
	}
}

func limitClaim(r *rig) {
	r.add("a")
	long := strings.Repeat("a", storage.MaxName+1)
	for _, c := range []alter[storage.ClaimRequest]{
		{"no runner", func(c *storage.ClaimRequest) { c.Runner = "" }},
		{"a long runner", func(c *storage.ClaimRequest) { c.Runner = long }},
		{"no queues", func(c *storage.ClaimRequest) { c.Queues = nil }},
		{"too many queues", func(c *storage.ClaimRequest) {
			c.Queues = nil
			for _, name := range manyNames() {
				c.Queues = append(c.Queues, storage.ClaimQueue{Name: name})
			}
		}},
		{"a bad queue", func(c *storage.ClaimRequest) { c.Queues[0].Name = "a b" }},
		{"a queue twice", func(c *storage.ClaimRequest) { c.Queues = append(c.Queues, c.Queues[0]) }},
		{"no token", func(c *storage.ClaimRequest) { c.Token = storage.Token{} }},
		{"a short lease", func(c *storage.ClaimRequest) { c.Lease = storage.MinLease - 1 }},
		{"a long lease", func(c *storage.ClaimRequest) { c.Lease = storage.MaxDelay + 1 }},
		{"too many", func(c *storage.ClaimRequest) { c.Start = storage.MaxClaim + 1 }},
		{"too many ahead", func(c *storage.ClaimRequest) { c.Ahead = storage.MaxClaim - c.Start + 1 }},
		{"a negative number", func(c *storage.ClaimRequest) { c.Start = -1 }},
		{"a negative number ahead", func(c *storage.ClaimRequest) { c.Ahead = -1 }},
	} {
		req := ask(5)
		req.Call, req.Token = r.first(), storage.NewToken()
		c.alter(&req)
		_, err := r.store.Claim(r.ctx, req)
		r.wantInvalid(c.what, err)
		r.is("a", storage.Waiting)
	}
	req := brief(storage.MaxClaim)
	req.Runner, req.Start, req.Ahead = long[1:], 0, storage.MaxClaim
	r.hold(req, 1)
}

func limitExtend(r *rig) {
	h := r.holding(job("a"))
	for _, c := range []alter[storage.ExtendRequest]{
		{"a short lease", func(x *storage.ExtendRequest) { x.Leases[0].For = storage.MinLease - 1 }},
		{"no version", func(x *storage.ExtendRequest) { x.Leases[0].Fence.Version = 0 }},
		{"a lease twice", func(x *storage.ExtendRequest) { x.Leases = append(x.Leases, x.Leases[0]) }},
		{"progress too big", func(x *storage.ExtendRequest) { x.Leases[0].Progress = make([]byte, 1001) }},
		{"a checkpoint too big", func(x *storage.ExtendRequest) { x.Leases[0].Checkpoint = make([]byte, 1001) }},
		{"a bad runner", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "a b", For: time.Hour}
		}},
		{"a short heartbeat", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Second - 1}
		}},
		{"a heartbeat with a bad queue", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Hour, Queues: []string{"a b"}}
		}},
		{"too many queues", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Hour, Queues: make([]string, storage.MaxNames+1)}
		}},
		{"too much running", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Hour}
			x.Runner.Running = make([]storage.Running, storage.MaxRunning+1)
		}},
		{"a start too far", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Hour}
			x.Runner.Started = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		}},
		{"a start of a task too far", func(x *storage.ExtendRequest) {
			x.Runner = storage.RunnerInfo{ID: "r", For: time.Hour}
			x.Runner.Running = []storage.Running{{Ref: in("a"), Since: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}}
		}},
	} {
		r.unchanged(func() {
			req := storage.ExtendRequest{Leases: []storage.Extension{
				{Fence: h.Fence, For: time.Hour, Progress: []byte("p")},
			}}
			c.alter(&req)
			_, err := r.session.Extend(r.ctx, req)
			r.wantInvalid(c.what, err)
		}, "a")
		r.want("runners", len(r.runners()), 0)
	}
	r.extend(storage.Extension{
		Fence: h.Fence, For: storage.MinLease, Progress: make([]byte, 1000), Checkpoint: make([]byte, 1000),
	})
	r.want("progress", len(r.read("a").Progress), 1000)
}

// manyNames returns one queue name more than a request may have.
func manyNames() []string {
	names := make([]string, storage.MaxNames+1)
	for i := range names {
		names[i] = fmt.Sprintf("queue-%d", i)
	}
	return names
}

func limitCursor(r *rig) {
	at := r.now().Add(time.Hour)
	long := strings.Repeat("a", storage.MaxHeaderBytes+1)
	for _, text := range []string{"a\x00b", "\xff", "\xed\xa0\x80", long} {
		j := cursor("cursor.c", at)
		j.Cursor.Declaration = text
		_, err := r.session.Apply(r.ctx, inserting(j))
		r.wantInvalid(fmt.Sprintf("declaration %.10q", text), err)
	}
	for what, alter := range map[string]func(c *storage.Cursor){
		"next": func(c *storage.Cursor) { c.Next = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
		"last": func(c *storage.Cursor) { c.Last = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		j := cursor("cursor.c", at)
		alter(j.Cursor)
		_, err := r.session.Apply(r.ctx, inserting(j))
		r.wantInvalid("a "+what+" before the year 1", err)
	}
	for i, text := range []string{"", "tägliche ☃\x01", strings.Repeat("a", storage.MaxHeaderBytes)} {
		j := cursor(fmt.Sprintf("cursor.c%d", i), at)
		j.Cursor.Declaration = text
		r.insert(j)
		r.want("placed again", r.insert(j)[0].Existing, true)
		r.want("declaration", r.read(j.Ref.ID).Cursor.Declaration, text)
	}
}

func limitWait(r *rig) {
	for what, names := range map[string][]string{
		"no queues": nil, "a bad queue": {mainQueue, "a b"}, "1,001 queues": manyNames(),
	} {
		r.wantInvalid("a Wait for "+what, r.store.Wait(r.ctx, storage.WaitRequest{Queues: names}))
	}
}

func limitCall(r *rig) {
	h := r.holding(job("a"))
	good := r.first()
	for _, c := range []alter[storage.Call]{
		{"no number", func(c *storage.Call) { c.Seq = 0 }},
		{"a number too high", func(c *storage.Call) { c.Seq = storage.MaxSeq + 1 }},
		{"no lane", func(c *storage.Call) { c.Lane.ID = [16]byte{} }},
		{"a lane never opened", func(c *storage.Call) { c.Lane.Opened = time.Time{} }},
	} {
		call := good
		c.alter(&call)
		r.unchanged(func() {
			_, err := r.store.Apply(r.ctx, call, inserting(job("b")))
			r.wantInvalid("apply with "+c.what, err)
			req := ask(1)
			req.Call, req.Token = call, storage.NewToken()
			_, err = r.store.Claim(r.ctx, req)
			r.wantInvalid("claim with "+c.what, err)
			_, err = r.store.Extend(r.ctx, storage.ExtendRequest{
				Call: call, Leases: []storage.Extension{{Fence: h.Fence, Progress: []byte("p")}},
			})
			r.wantInvalid("extend with "+c.what, err)
			err = r.store.Configure(r.ctx, call, mainQueue, pausing(0))
			r.wantInvalid("configure with "+c.what, err)
		}, "a", "b")
	}
	r.want("paused", r.stats().Paused, false)
	good.Seq = storage.MaxSeq
	r.called(good, inserting(job("b")))
}

func limitReads(r *rig) {
	r.add("a")
	_, err := r.store.Task(r.ctx, storage.Ref{Queue: "a b", ID: "a"})
	r.wantInvalid("a task of a bad queue", err)
	_, err = r.store.Task(r.ctx, storage.Ref{Queue: mainQueue})
	r.wantInvalid("a task with no id", err)
	for what, q := range map[string]storage.TasksQuery{
		"a bad queue":   {Queue: "", State: storage.Waiting},
		"no state":      {Queue: mainQueue},
		"a bad state":   {Queue: mainQueue, State: "running"},
		"a page of 201": {Queue: mainQueue, State: storage.Waiting, Limit: 201},
		"a page of -1":  {Queue: mainQueue, State: storage.Waiting, Limit: -1},
		"a long cursor": {Queue: mainQueue, State: storage.Waiting, After: strings.Repeat("a", 1000)},
		"NUL":           {Queue: mainQueue, State: storage.Waiting, After: "\x00"},
		"no text":       {Queue: mainQueue, State: storage.Waiting, After: "\xff"},
	} {
		_, err := r.store.Tasks(r.ctx, q)
		r.wantInvalid("a listing with "+what, err)
	}
	_, err = r.store.Queues(r.ctx, storage.QueuesQuery{Limit: 1001})
	r.wantInvalid("a page of 1,001 queues", err)
	for _, after := range []string{"a\x00", "\xff"} {
		_, err = r.store.Queues(r.ctx, storage.QueuesQuery{After: after})
		r.wantInvalid(fmt.Sprintf("queues after %q", after), err)
	}
	_, err = r.store.Queues(r.ctx, storage.QueuesQuery{Prefix: "*"})
	r.wantInvalid("a prefix of other characters", err)
	_, err = r.store.Stats(r.ctx, mainQueue, "a b")
	r.wantInvalid("stats of a bad queue", err)
	for what, s := range map[string]storage.Settings{
		"a negative pause":     {Pause: &storage.Pause{On: true, For: -1}},
		"a time but no pause":  {Pause: &storage.Pause{For: time.Second}},
		"a pause under 1ms":    {Pause: &storage.Pause{On: true, For: time.Millisecond - 1}},
		"removal and pause":    {Remove: true, Pause: &storage.Pause{On: true}},
		"creation and pause":   {Create: true, Pause: &storage.Pause{}},
		"creation and removal": {Create: true, Remove: true},
		"nothing to change":    {},
	} {
		r.wantInvalid(what, r.session.Configure(r.ctx, mainQueue, s))
	}
	r.wantInvalid("settings of a bad queue", r.session.Configure(r.ctx, "", resuming()))
	r.want("paused", r.stats().Paused, false)
}

func limitNames(r *rig) {
	const name = "a:b.c-d_e:"
	j := job(name)
	j.Ref.Queue, j.Kind = name, name
	r.insert(j)
	req := ask(1)
	req.Queues[0].Name = name
	h := r.hold(req, 1)[0]
	r.want("claimed", h.Ref, j.Ref)
	r.end(h, storage.Decline)
	stats, err := r.store.Stats(r.ctx, name)
	r.must("stats", err)
	r.want("declined", stats[0].Declined, []storage.KindSize{{Kind: name, Tasks: 1}})
	page, err := r.store.Tasks(r.ctx, storage.TasksQuery{Queue: name, State: storage.Waiting, Limit: 1})
	r.must("list", err)
	r.want("listed", ids(page.Tasks), []string{name})
	req.Kinds = []string{name}
	r.end(r.hold(req, 1)[0], storage.Bury)
	names, err := r.store.Queues(r.ctx, storage.QueuesQuery{Prefix: "a:b"})
	r.must("queues", err)
	r.want("queues", names.Names, []string{name})
}

func limitWholeCall(r *rig) {
	call := r.first()
	bad := job("b")
	bad.Priority = 10
	_, err := r.store.Apply(r.ctx, call, inserting(job("a")), inserting(bad))
	r.wantInvalid("a call with one invalid Tx", err)
	r.gone("a", "b")
	r.want("placed", r.called(call, inserting(job("a")))[0].Inserted[0].Existing, false)
	r.is("a", storage.Waiting)
}

package storagetest

import (
	"time"

	"github.com/midgehq/midge/storage"
)

func extendRules() []rule {
	return []rule{
		state("extend/new deadline", extendDeadline,
			"Extension.For is the new lease from now, longer or shorter; 0 leaves the deadline."),
		state("extend/stale fence", extendStale,
			"A stale fence extends nothing, starts nothing and writes no progress and no checkpoint; it "+
				"is listed in Lost."),
		state("extend/each by itself", extendEach,
			"A lost lease in an Extend leaves the other leases extended."),
		state("extend/progress and checkpoint", extendProgress,
			"Progress and checkpoint replace the last ones where not nil, at once, and are read with the task."),
		state("extend/cancel asked", extendCancelAsked,
			"Extend says which of its tasks were asked to cancel, each time, and still extends them."),
		state("extend/charges nothing", extendCharges,
			"Extend charges and versions nothing, and the fence stays valid."),
		state("extend/time", extendTime,
			"Extended.Now is the storage's time."),
		state("runners/heartbeat", runnersHeartbeat,
			"A runner that sends a heartbeat is listed with all that it tells, sorted by id, until "+
				"RunnerInfo.For has passed."),
		state("runners/vitals", runnersVitals,
			"The vitals of a heartbeat are kept byte for byte, up to MaxVitals; a heartbeat without vitals "+
				"keeps those of the heartbeat before, and none of a runner that left or of another one."),
		state("runners/schedules", runnersSchedules,
			"A heartbeat without schedules keeps those of the heartbeat before, and none of a runner that left "+
				"or of another one."),
		state("runners/leaving", runnersLeaving,
			"A runner that leaves is listed no more."),
		state("runners/no heartbeat without an id", runnersNone,
			"An Extend with no runner id is no heartbeat."),
	}
}

func extendDeadline(r *rig) {
	h := r.holding(job("a"))
	for _, lease := range []time.Duration{time.Hour, 2 * time.Second} {
		from := r.now()
		x := r.extend(storage.Extension{Fence: h.Fence, For: lease})
		r.want("lost", len(x.Lost), 0)
		r.between("LeaseUntil", r.read("a").LeaseUntil, from.Add(lease), r.now().Add(lease))
	}
	r.unchanged(func() { r.extend(storage.Extension{Fence: h.Fence}) }, "a")
}

func extendStale(r *rig) {
	r.add("a", "b")
	req := ask(1)
	req.Start, req.Ahead = 0, req.Start
	h := r.take(req, "a")
	for what, f := range map[string]storage.Fence{
		"another version": {Ref: in("a"), Version: h.Version + 1, Token: h.Fence.Token},
		"another token":   {Ref: in("a"), Version: h.Version, Token: storage.NewToken()},
		"no token":        {Ref: in("a"), Version: h.Version},
		"a waiting task":  {Ref: in("b"), Version: r.read("b").Version, Token: h.Fence.Token},
		"a missing task":  {Ref: in("c"), Version: h.Version, Token: h.Fence.Token},
	} {
		r.unchanged(func() {
			x := r.extend(storage.Extension{
				Fence: f, For: time.Hour, Started: true, Progress: []byte("p"), Checkpoint: []byte("c"),
			})
			r.want("lost with "+what, x.Lost, []storage.Ref{f.Ref})
			r.want("cancels with "+what, len(x.CancelAsked), 0)
		}, "a", "b", "c")
	}
}

func extendEach(r *rig) {
	r.add("a", "b", "c")
	holds := r.hold(ask(3), 3)
	r.end(holds[1], storage.Complete)
	var req storage.ExtendRequest
	for _, h := range holds {
		req.Leases = append(req.Leases, storage.Extension{Fence: h.Fence, For: time.Hour, Progress: []byte(h.ID)})
	}
	x, err := r.session.Extend(r.ctx, req)
	r.must("extend", err)
	r.want("lost", x.Lost, []storage.Ref{in("b")})
	for _, id := range []string{"a", "c"} {
		t := r.read(id)
		r.want("progress", string(t.Progress), id)
		r.want("extended", t.LeaseUntil.After(holds[0].LeaseUntil), true)
	}
}

func extendProgress(r *rig) {
	h := r.holding(job("a"))
	for _, step := range []struct {
		e    storage.Extension
		p, c string
	}{
		{storage.Extension{Progress: []byte("10%")}, "10%", ""},
		{storage.Extension{Checkpoint: []byte{0, 255, '\n'}}, "10%", "\x00\xff\n"},
		{storage.Extension{For: long}, "10%", "\x00\xff\n"},
		{storage.Extension{Progress: []byte("20%"), Checkpoint: []byte("two")}, "20%", "two"},
		{storage.Extension{Progress: []byte{}}, "", "two"},
	} {
		step.e.Fence = h.Fence
		r.extend(step.e)
		t := r.read("a")
		r.want("progress, checkpoint", [2]string{string(t.Progress), string(t.Checkpoint)},
			[2]string{step.p, step.c})
	}
}

func extendCancelAsked(r *rig) {
	r.add("a", "b")
	holds := r.hold(ask(2), 2)
	r.cancel("b")
	for range 2 {
		from := r.now()
		req := storage.ExtendRequest{Leases: []storage.Extension{
			{Fence: holds[0].Fence, For: time.Hour}, {Fence: holds[1].Fence, For: time.Hour},
		}}
		x, err := r.session.Extend(r.ctx, req)
		r.must("extend", err)
		r.want("cancels, lost", [2]any{x.CancelAsked, len(x.Lost)}, [2]any{[]storage.Ref{in("b")}, 0})
		r.between("LeaseUntil", r.read("b").LeaseUntil, from.Add(time.Hour), r.now().Add(time.Hour))
	}
}

func extendCharges(r *rig) {
	h := r.holding(job("a"))
	before := r.read("a")
	for range 5 {
		r.extend(storage.Extension{Fence: h.Fence, For: time.Hour, Started: true})
	}
	after := r.read("a")
	after.LeaseUntil = before.LeaseUntil
	r.want("all but the lease", after, before)
	r.end(h, storage.Complete)
}

func extendTime(r *rig) {
	h := r.holding(job("a"))
	from := r.now()
	r.between("Extended.Now", r.extend(storage.Extension{Fence: h.Fence}).Now, from, r.now())
}

// heartbeat sends a heartbeat and returns the runners that are then listed.
func (r *rig) heartbeat(info storage.RunnerInfo) []storage.RunnerInfo {
	r.Helper()
	r.pace.rely(info.For)
	_, err := r.session.Extend(r.ctx, storage.ExtendRequest{Runner: info})
	r.must("heartbeat", err)
	return r.runners()
}

func (r *rig) runners() []storage.RunnerInfo {
	r.Helper()
	all, err := r.store.Runners(r.ctx)
	r.must("runners", err)
	ids, err := storage.RunnerIDs(r.ctx, r.store)
	r.must("runner ids", err)
	want := make([]string, len(all))
	for i := range all {
		want[i] = all[i].ID
	}
	r.want("ids of the runners", ids, want)
	return all
}

func runnersHeartbeat(r *rig) {
	now := r.now().UTC().Truncate(time.Microsecond)
	info := storage.RunnerInfo{
		ID: "r2", Host: "host \"é\"", PID: 42, Version: "v1", Queues: []string{mainQueue, sideQueue},
		Concurrency: 8, Started: now, For: time.Hour,
		Running: []storage.Running{{Ref: in("a"), Kind: "job", Since: now, Unstopped: now}}, Busy: 3,
		Schedules: []storage.Declared{{Ref: in("cursor.c"), Hash: "d"}},
		Limits: []storage.RunnerLimit{{Queue: mainQueue, Limit: storage.Limit{
			Concurrency: 50, Rate: storage.Rate{N: 100, Per: time.Minute},
			Partition: storage.PartitionLimit{Concurrency: 3, Rate: storage.Rate{N: 10, Per: time.Second}},
		}}},
		Undecodable: []storage.KindTrouble{
			{Queue: mainQueue, Kind: "mail", Since: now, Last: now, Tasks: 31, Reason: "field \"URL\": want é"},
		},
	}
	got := r.heartbeat(info)
	r.want("runners", len(got), 1)
	r.between("Seen", got[0].Seen, now, r.now())
	for _, t := range []*time.Time{
		&got[0].Started, &got[0].Running[0].Since, &got[0].Running[0].Unstopped, &got[0].Undecodable[0].Since,
		&got[0].Undecodable[0].Last,
	} {
		r.want("a time told", t.Equal(now), true)
		*t = now
	}
	got[0].Seen = time.Time{}
	r.want("runner", got[0], info)
	info.Undecodable = make([]storage.KindTrouble, storage.MaxTroubles+1)
	_, err := r.session.Extend(r.ctx, storage.ExtendRequest{Runner: info})
	r.wantInvalid("too many kinds", err)
	brief := storage.RunnerInfo{ID: "r1", For: time.Second}
	both := r.heartbeat(brief)
	if len(both) == 2 {
		r.want("by id", [2]string{both[0].ID, both[1].ID}, [2]string{"r1", "r2"})
		r.passTo(both[0].Seen.Add(time.Second))
	}
	left := r.runners()
	r.want("runners left", len(left), 1)
	r.want("runner left", left[0].ID, "r2")
}

func runnersVitals(r *rig) {
	odd := storage.RunnerInfo{
		ID: "r2", For: time.Hour, Host: `"Vitals":null,"Vitals":"Zm9v" %1`, Version: `\"Vitals\":\"Zm9v\"`,
		Schedules: []storage.Declared{{Ref: in("cursor.c"), Hash: `"Vitals":null`}},
	}
	all := make([]byte, storage.MaxVitals)
	for i := range all {
		all[i] = byte(i)
	}
	for _, step := range []struct{ told, want []byte }{
		{nil, nil},
		{[]byte("one"), []byte("one")},
		{nil, []byte("one")},
		{all, all},
		{nil, all},
		{[]byte{}, all},
		{[]byte("%0 %1 \\1"), []byte("%0 %1 \\1")},
		{nil, []byte("%0 %1 \\1")},
	} {
		r.heartbeat(storage.RunnerInfo{ID: "r1", For: time.Hour})
		odd.Vitals = step.told
		got := r.heartbeat(odd)
		r.want("runners", len(got), 2)
		r.want("vitals of another", got[0].Vitals, []byte(nil))
		r.want("vitals", got[1].Vitals, step.want)
		r.want("host, version, hash", [3]string{got[1].Host, got[1].Version, got[1].Schedules[0].Hash},
			[3]string{odd.Host, odd.Version, odd.Schedules[0].Hash})
	}
	odd.Vitals = make([]byte, storage.MaxVitals+1)
	_, err := r.session.Extend(r.ctx, storage.ExtendRequest{Runner: odd})
	r.wantInvalid("too many vitals", err)
	r.heartbeat(storage.RunnerInfo{ID: "r2", Leaving: true})
	odd.Vitals = nil
	r.want("vitals after it left", r.heartbeat(odd)[1].Vitals, []byte(nil))
}

func runnersSchedules(r *rig) {
	of := func(hash string) []storage.Declared {
		return []storage.Declared{{Ref: in("cursor.a"), Hash: hash}, {Ref: in("cursor.b"), Hash: `"%1\\`}}
	}
	none := []storage.Declared(nil)
	heartbeat := func(told []storage.Declared) []storage.Declared {
		r.heartbeat(storage.RunnerInfo{ID: "r1", For: time.Hour})
		got := r.heartbeat(storage.RunnerInfo{ID: "r2", For: time.Hour, Schedules: told})
		r.want("schedules of another", got[0].Schedules, none)
		return got[1].Schedules
	}
	for _, step := range []struct{ told, want []storage.Declared }{
		{nil, nil},
		{of("one"), of("one")},
		{nil, of("one")},
		{of("two")[:1], of("two")[:1]},
		{[]storage.Declared{}, of("two")[:1]},
	} {
		r.want("schedules", heartbeat(step.told), step.want)
	}
	r.heartbeat(storage.RunnerInfo{ID: "r2", Leaving: true})
	r.want("schedules after it left", heartbeat(nil), none)
}

func runnersLeaving(r *rig) {
	r.want("runners", len(r.heartbeat(storage.RunnerInfo{ID: "r1", For: time.Hour})), 1)
	r.want("after it left", len(r.heartbeat(storage.RunnerInfo{ID: "r1", Leaving: true})), 0)
	r.want("leaving again", len(r.heartbeat(storage.RunnerInfo{ID: "r1", Leaving: true})), 0)
}

func runnersNone(r *rig) {
	h := r.holding(job("a"))
	r.extend(storage.Extension{Fence: h.Fence, For: long})
	r.want("runners", len(r.runners()), 0)
}

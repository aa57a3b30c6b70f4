package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestOnlyALayoutThatCannotBeReadIsRefused: the error names the remedy.
func TestOnlyALayoutThatCannotBeReadIsRefused(t *testing.T) {
	for _, c := range []struct {
		have, reader, after string // "" if there is none
		readable            bool
	}{
		{"", "", fmt.Sprint(layout), true},
		{"0", "0", fmt.Sprint(layout), true},
		{fmt.Sprint(layout), fmt.Sprint(leastReader), fmt.Sprint(layout), true},
		{fmt.Sprint(layout + 1), fmt.Sprint(layout), fmt.Sprint(layout + 1), true},
		{fmt.Sprint(layout + 2), fmt.Sprint(layout + 1), fmt.Sprint(layout + 2), false},
	} {
		t.Run(c.have+" "+c.reader, func(t *testing.T) {
			server := miniredis.RunT(t)
			if c.have != "" {
				server.HSet("midge:{*}:layout", "layout", c.have, "reader", c.reader)
			}
			s, err := Open(t.Context(), Config{URL: "redis://" + server.Addr()})
			if err == nil {
				_ = s.Close()
			}
			var refused *LayoutError
			if errors.As(err, &refused) == c.readable || errors.Is(err, storage.ErrRefused) == c.readable {
				t.Errorf("got %v, readable %v", err, c.readable)
			}
			if refused != nil && (refused.Have != layout+2 || refused.Reader != layout+1 || refused.Knows != layout) {
				t.Errorf("got %+v", refused)
			}
			if got := server.HGet("midge:{*}:layout", "layout"); got != c.after {
				t.Errorf("Redis notes layout %q, want %q", got, c.after)
			}
		})
	}
}

// alter changes a byte of a record.
func alter(server *miniredis.Miniredis, id string, at int, by byte) {
	record := []byte(server.HGet("midge:{mail}:tasks", id))
	record[at] += by
	server.HSet("midge:{mail}:tasks", id, string(record))
}

// TestARecordOfALaterVersionIsLeftToThoseWhoKnowIt: a process that does not know its format passes it
// over in every state, and neither sets it apart nor removes it.
func TestARecordOfALaterVersionIsLeftToThoseWhoKnowIt(t *testing.T) {
	s, server := openMini(t)
	at := time.Now().Truncate(time.Second)
	server.SetTime(at)
	seq := uint64(0)
	claim := func() storage.Claimed {
		t.Helper()
		seq++
		c, err := s.Claim(t.Context(), asking(callOf(seq), 10, "mail"))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	held := insertOf("mail", "held")
	held.Inserts[0].MaxRetries = 0
	applyAll := func(txs ...storage.Tx) {
		t.Helper()
		for _, tx := range txs {
			if applied, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil || applied[0].Err != nil {
				t.Fatal(applied, err)
			}
		}
	}
	applyAll(held)
	claim()
	later, kept, ranked := insertOf("mail", "later"), insertOf("mail", "kept"), insertOf("mail", "ranked")
	later.Inserts[0].Delay = time.Minute
	kept.Inserts[0].Keep.For = time.Minute
	ranked.Inserts[0].Priority = 5
	applyAll(kept)
	applyAll(settleOf(claim().Fences[0], storage.Complete), later, ranked,
		insertOf("mail", "a"), insertOf("mail", "b"), insertOf("mail", "c"))
	all := []string{"held", "later", "kept", "ranked", "b"}
	for _, id := range all {
		alter(server, id, 0, 1)
	}
	if c := claim(); len(c.Tasks) != 2 || c.Tasks[0].ID != "a" || c.Tasks[1].ID != "c" || c.More {
		t.Errorf("claimed %v, more %v, want a and c alone", c.Tasks, c.More)
	}
	at = at.Add(2 * time.Minute) // all leases are over, and all is due or expired
	server.SetTime(at)
	for range 3 {
		seq++
		if c, err := s.Claim(t.Context(), asking(callOf(seq), 0, "mail")); err != nil || c.More {
			t.Errorf("got %+v, %v, want no more", c, err)
		}
	}
	if server.Exists("midge:{mail}:damaged") {
		t.Error("a record of a later version was set apart")
	}
	if _, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "b"}); !errors.Is(err, errLater) {
		t.Errorf("it is read with %v, want %v", err, errLater)
	}
	for _, id := range all { // set a format of the records that this process knows
		alter(server, id, 0, 255)
	}
	seen := make(map[string]bool)
	for range 5 {
		for _, task := range claim().Tasks {
			seen[task.ID] = true
		}
	}
	for _, id := range []string{"a", "b", "c", "held", "later", "ranked"} {
		if !seen[id] {
			t.Errorf("%s was not claimed by those who know its record", id)
		}
	}
	if _, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "kept"}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("what expired is read with %v, want %v", err, storage.ErrNotFound)
	}
}

// TestPartsOfALaterVersionSurvive: a process that does not know parts of a record keeps them when it
// changes the task.
func TestPartsOfALaterVersionSurvive(t *testing.T) {
	s, server := openMini(t)
	in := insertOf("mail", "a")
	in.Inserts[0].Timeout, in.Inserts[0].Delay = time.Minute, time.Hour
	in.Inserts[0].Unique = storage.Unique{Mode: storage.UniqueLife, Key: "k"}
	if _, err := s.Apply(t.Context(), callOf(1), in); err != nil {
		t.Fatal(err)
	}
	const parts = "\x00\x08\x09\x00\x05later"
	record := server.HGet("midge:{mail}:tasks", "a")
	record = record[:1] + string([]byte{record[1] + 128, record[2] + hasMore + 64}) +
		record[3:headerSize+placeSize] + parts + record[headerSize+placeSize:]
	server.HSet("midge:{mail}:tasks", "a", record)
	before, err := s.Task(t.Context(), storage.Ref{Queue: "mail", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	priority := 3
	change := storage.Change{Ref: storage.Ref{Queue: "mail", ID: "a"}, Now: true, Priority: &priority}
	change.Encoding, change.Payload, change.Version = "json", []byte("[]"), before.Version
	if applied, err := s.Apply(t.Context(), callOf(2), storage.Tx{Changes: []storage.Change{change}}); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	c, err := s.Claim(t.Context(), asking(callOf(3), 1, "mail"))
	if err != nil || len(c.Tasks) != 1 || string(c.Tasks[0].Payload) != "[]" || c.Tasks[0].Timeout != time.Minute {
		t.Fatal(c, err)
	}
	fail := settleOf(c.Fences[0], storage.Fail)
	fail.Settles[0].Delay = time.Hour
	if applied, err := s.Apply(t.Context(), callOf(4), fail); err != nil || applied[0].Err != nil {
		t.Fatal(applied, err)
	}
	task, err := s.Task(t.Context(), c.Tasks[0].Ref)
	if err != nil || task.Retries != 1 || task.Priority != 3 || task.Unique.Key != "k" {
		t.Errorf("got %+v, %v", task, err)
	}
	record = server.HGet("midge:{mail}:tasks", "a")
	if record[1]&128 == 0 || record[2]&(hasMore+64) != hasMore+64 || record[headerSize+placeSize:headerSize+placeSize+len(parts)] != parts {
		t.Errorf("the parts are gone: %q", record)
	}
}

// TestManyRecordsOfALaterVersionSetNoMore: a claim that meets nothing else has nothing left to do, although
// its batches of maintenance, and its reads of a line, are smaller than the contents of the line.
func TestManyRecordsOfALaterVersionSetNoMore(t *testing.T) {
	var zero storage.Outcome
	for name, outcome := range map[string]storage.Outcome{
		"waiting": zero, "partition": zero, "scheduled": zero, "pending": zero, "retry": storage.Fail,
		"completed": storage.Complete, "declined": storage.Decline, "declined beside a partition": storage.Decline,
	} {
		t.Run(name, func(t *testing.T) {
			s, server := openMini(t)
			session := storage.NewSession(s, testserver.Patience)
			at := time.Now()
			server.SetTime(at)
			if name == "declined beside a partition" {
				paused := storage.Settings{Partition: "z", Pause: &storage.Pause{On: true}}
				if err := session.Configure(t.Context(), "mail", paused); err != nil {
					t.Fatal(err)
				}
			}
			const many = 700
			standing(t, session, name, many, outcome)
			for i := range many {
				alter(server, fmt.Sprint("a", i), 0, 1)
			}
			server.SetTime(at.Add(2 * time.Minute))
			var more []bool
			for range 3 {
				more = append(more, knowing(t, session, 10, "job").More)
			}
			if more[2] {
				t.Errorf("More of the claims is %v, want false in the end", more)
			}
		})
	}
}

// standing inserts many tasks, and has them come to a state: outcome, if there is one, takes them there.
func standing(t *testing.T, session *storage.Session, name string, many int, outcome storage.Outcome) {
	t.Helper()
	var ins, outs []storage.Tx
	for i := range many {
		tx := insertOf("mail", fmt.Sprint("a", i))
		tx.Inserts[0].Keep.For = time.Minute
		tx.Inserts[0].Delay = map[string]time.Duration{"scheduled": time.Minute}[name]
		tx.Inserts[0].Partition = map[string]string{"partition": "p"}[name]
		ins = append(ins, tx)
	}
	insertAll(t, session, ins...)
	var zero storage.Outcome
	for outcome != zero && len(outs) < many || name == "pending" && len(outs) == 0 {
		for _, f := range knowing(t, session, many, "other").Fences {
			outs = append(outs, settleOf(f, outcome))
		}
	}
	if outcome != zero {
		insertAll(t, session, outs...)
	}
}

// knowing claims up to most tasks of mail for a runner that knows one kind.
func knowing(t *testing.T, session *storage.Session, most int, kind string) storage.Claimed {
	t.Helper()
	req := asking(storage.Call{}, most, "mail")
	req.Kinds = []string{kind}
	c, err := session.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

package redis

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/midgehq/midge/storage"
)

// TestOnlyALayoutThatCannotBeReadIsRefused: the error tells what to do.
func TestOnlyALayoutThatCannotBeReadIsRefused(t *testing.T) {
	for _, c := range []struct {
		have, reader, after string // "" where there is none
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
	for _, id := range all { // give the records a format that this process knows
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

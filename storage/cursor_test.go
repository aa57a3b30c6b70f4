package storage_test

import (
	"reflect"
	"testing"

	"github.com/midgehq/midge/storage"
)

func declared(text string) (storage.Declaration, error) {
	return (&storage.Cursor{Declaration: text}).Decode()
}

func TestDeclarationsReadAsWritten(t *testing.T) {
	for _, want := range []storage.Declaration{
		{Spec: "every 1h"},
		{
			Spec: "cron 0 3 * * *", Zone: "Europe/Paris", CatchUp: "all", CatchUpCap: 7, Overlap: "skip",
			Hash: "h", Replaced: []string{"", "tägliche ☃\x00<"},
		},
	} {
		got, err := declared(want.Encode())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestDeclarationsOfALaterVersionAreRead(t *testing.T) {
	got, err := declared(`{"spec":"every 1h","moon":{"phase":"new"}}`)
	if err != nil || got.Spec != "every 1h" {
		t.Errorf("got %+v, %v, want the schedule", got, err)
	}
}

func TestDamagedDeclarations(t *testing.T) {
	for _, text := range []string{"", "null", "{}", "[]", "every 1h", `{"spec":7}`, `{"spec":"every 1h"`, "\xff\x00"} {
		_, err := declared(text)
		invalid(t, text, err)
	}
	var none *storage.Cursor
	_, err := none.Decode()
	invalid(t, "no cursor", err)
}

func FuzzDeclaration(f *testing.F) {
	f.Add(`{"spec":"every 1h","catch_up":"all","catch_up_cap":7,"replaced":["a"]}`)
	f.Add("garbage")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := declared(text)
		if err != nil {
			return
		}
		again, err := declared(d.Encode())
		if err != nil || again.Encode() != d.Encode() {
			t.Errorf("%q: got %+v and then %+v, %v", text, d, again, err)
		}
	})
}

// TestTickersTickWhatTheyDeclareOrKnow checks who ticks a schedule: a runner that declares it exactly so or, if
// it is kept, a runner that serves its queue and knows its kind.
func TestTickersTickWhatTheyDeclareOrKnow(t *testing.T) {
	cursor := storage.Task{Ref: storage.Ref{Queue: "q", ID: storage.CursorPrefix + "s"}, Kind: "k"}
	runner := func(queue, kind string, hashes ...string) storage.RunnerInfo {
		r := storage.RunnerInfo{Queues: []string{queue}, Kinds: []string{kind}}
		for _, hash := range hashes {
			r.Schedules = append(r.Schedules, storage.Declared{Ref: cursor.Ref, Hash: hash})
		}
		return r
	}
	kept, declared := storage.Declaration{Hash: "h", Kept: true}, storage.Declaration{Hash: "h"}
	paused := storage.Declaration{Hash: "h", Paused: true}
	for _, c := range []struct {
		what                   string
		d                      storage.Declaration
		runners                []storage.RunnerInfo
		ticks, orphan, clashes bool
	}{
		{"no runner", declared, nil, false, true, false},
		{"declared", declared, []storage.RunnerInfo{runner("x", "x", "g"), runner("x", "x", "h")}, true, false, false},
		{"declared otherwise", declared, []storage.RunnerInfo{runner("q", "k", "g")}, false, true, false},
		{"declared by nobody, and paused", paused, []storage.RunnerInfo{runner("q", "k")}, false, false, false},
		{"kept, no runner", kept, nil, false, true, false},
		{"kept, kind and queue of two runners", kept, []storage.RunnerInfo{runner("q", "x"), runner("x", "k")}, false, true, false},
		{"kept and known", kept, []storage.RunnerInfo{runner("q", "x"), runner("q", "k")}, true, false, false},
		{"kept and declared", kept, []storage.RunnerInfo{runner("q", "x", "g")}, false, true, true},
		{"kept, known and declared", kept, []storage.RunnerInfo{runner("q", "k", "h")}, true, false, true},
	} {
		tickers := storage.TickersOf(c.runners)
		for range 2 { // the second time it is remembered
			if got := tickers.Tick(&cursor, &c.d); got != c.ticks {
				t.Errorf("%s: ticks %t, want %t", c.what, got, c.ticks)
			}
		}
		if got := tickers.Orphaned(&cursor, &c.d); got != c.orphan {
			t.Errorf("%s: orphaned %t, want %t", c.what, got, c.orphan)
		}
		if got := tickers.Clashes(&cursor, &c.d); got != c.clashes {
			t.Errorf("%s: clashes %t, want %t", c.what, got, c.clashes)
		}
	}
}

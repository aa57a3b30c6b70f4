package midge

import (
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

type payment struct {
	User   int
	Amount string
	Notes  map[string]string
}

type refund payment

func TestUniqueTakesLifeOrATime(t *testing.T) {
	byDefault, life := uniqueOf(t, once{}, Unique{Key: "a"}), uniqueOf(t, once{}, Unique{Key: "a", Life: true})
	if byDefault.Unique != life.Unique || life.Unique.Mode != storage.UniqueLife {
		t.Errorf("got %+v and %+v, want one key for the life of the task", byDefault.Unique, life.Unique)
	}
	_, err := newInsert(mustDefine(t, once{}), once{}, []Option{Unique{Life: true, For: time.Hour}})
	wantsWord(t, err, "Unique", `"with Life and For": want Life until`)
}

func uniqueOf(t *testing.T, job any, opts ...Option) storage.Insert {
	t.Helper()
	d, err := new(definitions).of(job)
	if err != nil {
		t.Fatal(err)
	}
	in, err := newInsert(d, job, opts)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestUniqueKeysTellApart(t *testing.T) {
	seen := make(map[string]int)
	for i, in := range []storage.Insert{
		uniqueOf(t, payment{User: 1}, Unique{}),
		uniqueOf(t, payment{User: 2}, Unique{}),
		uniqueOf(t, refund{User: 1}, Unique{}),
		uniqueOf(t, payment{User: 1}, Unique{For: time.Hour}),
		uniqueOf(t, payment{User: 1}, Unique{By: []string{"User"}}),
		uniqueOf(t, payment{User: 2}, Unique{By: []string{"User"}}),
		uniqueOf(t, payment{User: 1}, Unique{By: []string{"User", "Amount"}}),
		uniqueOf(t, payment{User: 1}, Unique{By: []string{"Amount"}}),
		uniqueOf(t, payment{Amount: "1"}, Unique{By: []string{"Amount"}}),
		uniqueOf(t, payment{User: 1}, Unique{Key: "1"}),
		uniqueOf(t, payment{User: 1}, Unique{Key: "User"}),
		uniqueOf(t, refund{User: 1}, Unique{Key: "1"}),
	} {
		if other, ok := seen[in.Unique.Key]; ok {
			t.Errorf("keys %d and %d are the same", other, i)
		}
		seen[in.Unique.Key] = i
	}
}

func TestUniqueKeysAgree(t *testing.T) {
	notes := func() map[string]string { return map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"} }
	for name, pair := range map[string][2]storage.Insert{
		"value and pointer":   {uniqueOf(t, payment{User: 1}, Unique{}), uniqueOf(t, &payment{User: 1}, Unique{})},
		"maps":                {uniqueOf(t, payment{Notes: notes()}, Unique{}), uniqueOf(t, payment{Notes: notes()}, Unique{})},
		"maps by field":       {uniqueOf(t, payment{Notes: notes()}, Unique{By: []string{"Notes"}}), uniqueOf(t, payment{User: 1, Notes: notes()}, Unique{By: []string{"Notes"}})},
		"fields in any order": {uniqueOf(t, payment{}, Unique{By: []string{"User", "Amount"}}), uniqueOf(t, payment{}, Unique{By: []string{"Amount", "User"}})},
		"other fields":        {uniqueOf(t, payment{User: 1, Amount: "1"}, Unique{By: []string{"User"}}), uniqueOf(t, payment{User: 1, Amount: "2"}, Unique{By: []string{"User"}})},
		"other options":       {uniqueOf(t, payment{User: 1}, Unique{}), uniqueOf(t, payment{User: 1}, Unique{}, Priority(3), ID("x"))},
		"windows":             {uniqueOf(t, payment{}, Unique{For: time.Hour}), uniqueOf(t, payment{}, Unique{For: time.Minute})},
		"a given key":         {uniqueOf(t, payment{User: 1}, Unique{Key: "k"}), uniqueOf(t, payment{User: 2}, Unique{Key: "k"})},
	} {
		if pair[0].Unique.Key != pair[1].Unique.Key || pair[0].Unique.Key == "" {
			t.Errorf("%s: got %q and %q, want one key", name, pair[0].Unique.Key, pair[1].Unique.Key)
		}
	}
}

// A deploy that reorders the fields of a type, or of a nested type, lets no duplicate in.
func TestUniqueKeysDoNotDependOnTheOrderOfFields(t *testing.T) {
	type line struct {
		Count int
		Item  string
	}
	type reordered struct {
		Item  string
		Count int
	}
	type first struct {
		User  int
		Lines []line
		ByID  map[string]line
		Any   any
		Name  string `json:"n" msgpack:"n"`
		Cost  *line
	}
	type second struct {
		Cost  *reordered
		Title string `json:"n" msgpack:"n"`
		Any   any
		ByID  map[string]reordered
		User  int
		Lines []reordered
	}
	one := func() any {
		return first{7, []line{{1, "a"}, {2, "b"}}, map[string]line{"x": {3, "c"}, "y": {4, "d"}}, map[string]any{"p": line{5, "e"}, "q": 1e21}, "n", &line{6, "f"}}
	}
	other := func() any {
		return second{&reordered{"f", 6}, "n", map[string]any{"q": 1e21, "p": reordered{"e", 5}}, map[string]reordered{"y": {"d", 4}, "x": {"c", 3}}, 7, []reordered{{"a", 1}, {"b", 2}}}
	}
	swapped := func() any {
		job := other().(second)
		job.Lines[0], job.Lines[1] = job.Lines[1], job.Lines[0]
		return job
	}
	key := func(job any, encoding Encoding, u Unique) string {
		d, err := define(reflect.TypeOf(job))
		if err != nil {
			t.Fatal(err)
		}
		d.kind, d.options.Encoding = "order", encoding
		in, err := newInsert(d, job, []Option{u})
		if err != nil {
			t.Fatal(err)
		}
		return in.Unique.Key
	}
	for _, encoding := range []Encoding{MessagePack, JSON} {
		for name, u := range map[string]Unique{"all parameters": {}, "by fields": {By: []string{"Lines", "ByID", "Any", "Cost"}}} {
			if a, b := key(one(), encoding, u), key(other(), encoding, u); a != b {
				t.Errorf("%s, %s: got keys %s and %s, want one", encoding, name, a, b)
			}
			if a, b := key(one(), encoding, u), key(swapped(), encoding, u); a == b {
				t.Errorf("%s, %s: lists in another order have one key", encoding, name)
			}
		}
		type plain struct {
			User int
			Line line
		}
		type moved struct {
			Line reordered
			User int
		}
		for name, u := range map[string]Unique{"all of a type without maps": {}, "a field of one": {By: []string{"Line"}}} {
			if a, b := key(plain{7, line{1, "a"}}, encoding, u), key(moved{reordered{"a", 1}, 7}, encoding, u); a != b {
				t.Errorf("%s, %s: got keys %s and %s, want one", encoding, name, a, b)
			}
		}
	}
}

func TestTheKeyLeavesTheParametersAsTheyWere(t *testing.T) {
	type job struct{ B, A int }
	with, without := uniqueOf(t, job{1, 2}, Unique{}), uniqueOf(t, job{1, 2})
	if string(with.Payload) != string(without.Payload) {
		t.Errorf("got parameters %x, want %x", with.Payload, without.Payload)
	}
}

func TestUniqueModes(t *testing.T) {
	life, window := uniqueOf(t, payment{}, Unique{}), uniqueOf(t, payment{}, Unique{For: time.Hour, Refuse: true})
	if life.Unique.Mode != storage.UniqueLife || life.Unique.For != 0 || life.OnConflict != storage.Skip {
		t.Errorf("got %+v, %s; want a life and skip", life.Unique, life.OnConflict)
	}
	if window.Unique.Mode != storage.UniqueWindow || window.Unique.For != time.Hour || window.OnConflict != storage.Refuse {
		t.Errorf("got %+v, %s; want a window and refuse", window.Unique, window.OnConflict)
	}
	if in := uniqueOf(t, payment{}); in.Unique != (storage.Unique{}) {
		t.Errorf("got %+v, want none", in.Unique)
	}
}

type once struct{ A int }

func (once) Options() Options {
	return Options{Unique: &Unique{}, Headers: map[string]string{"a": "type"}, Keep: Keep{For: time.Hour}, Retries: 3}
}

func TestOptionsOverrideTheType(t *testing.T) {
	if in := uniqueOf(t, once{}); in.Unique.Key == "" || in.Headers["a"] != "type" || in.Keep.For != time.Hour || in.MaxRetries != 3 {
		t.Errorf("got %+v, want what the type declares", in)
	}
	in := uniqueOf(t, once{}, NotUnique(), Header("a", "call"), Header("b", "call"), KeepFor(0), Retries(None), Timeout(time.Second), Priority(-9), To("q"))
	if in.Unique.Key != "" || in.Headers["a"] != "call" || in.Headers["b"] != "call" || in.Keep != (Keep{}) ||
		in.MaxRetries != 0 || in.Timeout != time.Second || in.Priority != -9 || in.Ref.Queue != "q" {
		t.Errorf("got %+v, want what the call says", in)
	}
	if in := uniqueOf(t, once{}, Retries(None), CrashLimit(7), UntilRead()); in.MaxRetries != 0 || in.CrashLimit != 7 || !in.Keep.UntilRead || in.Headers["a"] != "type" {
		t.Errorf("got %+v, want no retries and the type's own headers untouched", in)
	}
	in = uniqueOf(t, once{}, Geometric{First: time.Minute, Jitter: -1})
	if b := recordedBackoff(in.Headers); b == nil || b(1) != time.Minute || in.Headers["a"] != "type" {
		t.Errorf("got headers %v, want a recorded backoff beside the type's", in.Headers)
	}
}

func FuzzUniqueKeysAreDisjoint(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		if a == c && b == d {
			return
		}
		type two struct{ A, B string }
		one, other := uniqueOf(t, two{a, b}, Unique{By: []string{"A", "B"}}), uniqueOf(t, two{c, d}, Unique{By: []string{"A", "B"}})
		if one.Unique.Key == other.Unique.Key {
			t.Errorf("%q, %q and %q, %q have one key", a, b, c, d)
		}
	})
}

package midge

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// Report is a periodic job of these tests.
type Report struct{ Name string }

func cursorOf(s Schedule, job any, opts ...PeriodicOption) (storage.Insert, error) {
	d, err := new(definitions).of(job)
	if err != nil {
		return storage.Insert{}, err
	}
	return cursorInsert(d, "", job, s, opts)
}

func declarationOf(t *testing.T, in storage.Insert) storage.Declaration {
	t.Helper()
	d, err := in.Cursor.Decode()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCursorInsert(t *testing.T) {
	in, err := cursorOf(Cron("0 3 * * *"), Report{"daily"}, Zone("Europe/Paris"), Named("nightly"), To("reports"),
		Priority(3), Retries(2), Timeout(time.Minute), Header("tenant", "7"), AllMissed(10), NoOverlap(), KeepFor(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := in.Ref.String(), "reports/cursor.nightly"; got != want {
		t.Errorf("got ref %s, want %s", got, want)
	}
	if in.Priority != 3 || in.MaxRetries != 2 || in.Timeout != time.Minute || in.Headers["tenant"] != "7" || in.Keep.For != time.Hour {
		t.Errorf("got %+v, want the options of its tasks", in)
	}
	d := declarationOf(t, in)
	if d.Hash == "" {
		t.Error("got no hash of the declaration")
	}
	d.Hash = ""
	want := storage.Declaration{
		Spec: "cron 0 3 * * *", Zone: "Europe/Paris", CatchUp: "all", CatchUpCap: 10, Overlap: "skip",
	}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if in, err = cursorOf(Every(time.Hour), &Report{}); err != nil || in.Ref.ID != "cursor.report" ||
		declarationOf(t, in).CatchUp != "one" {
		t.Errorf("got %+v, %v; want the kind as the name and one task for all missed", in, err)
	}
}

func TestDeclarationTellsSchedulesApart(t *testing.T) {
	seen := make(map[string]int)
	for i, declare := range []func() (storage.Insert, error){
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Minute), Report{}) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{"x"}) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Priority(1)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Partition("1")) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Cost(0)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Cost(2)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Retries(1)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Retries(11)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Timeout(time.Second)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, KeepFor(time.Second)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, UntilRead()) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, SkipMissed()) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, AllMissed(0)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, AllMissed(5)) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, NoOverlap()) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Header("a", "b")) },
		func() (storage.Insert, error) { return cursorOf(Every(time.Hour), Report{}, Geometric{}) },
		func() (storage.Insert, error) { return cursorOf(Cron("@hourly"), Report{}) },
		func() (storage.Insert, error) { return cursorOf(Cron("@hourly"), Report{}, Zone("Europe/Paris")) },
	} {
		in, err := declare()
		if err != nil {
			t.Fatal(err)
		}
		again, err := declare()
		if err != nil || again.Cursor.Declaration != in.Cursor.Declaration {
			t.Errorf("declaration %d: got another one the second time", i)
		}
		hash := declarationOf(t, in).Hash
		if other, ok := seen[hash]; ok {
			t.Errorf("declarations %d and %d have the same hash", other, i)
		}
		seen[hash] = i
	}
}

func TestInvalidDeclarations(t *testing.T) {
	for name, opts := range map[string][]PeriodicOption{
		"nil":             {nil},
		"In":              {In(time.Hour)},
		"At":              {At(time.Now())},
		"ID":              {ID("x")},
		"Unique":          {Unique{}},
		"a bad name":      {Named("a b")},
		"no name":         {Named("")},
		"a long name":     {Named(string(make([]byte, 200)))},
		"a bad queue":     {To("a/b")},
		"AllMissed(101)":  {AllMissed(101)},
		"AllMissed(-1)":   {AllMissed(-1)},
		"Priority(10)":    {Priority(10)},
		"a zone":          {Zone("Europe/Paris")}, // with Every
		"a midge. header": {Header("midge.tick", "x")},
	} {
		_, err := cursorOf(Every(time.Hour), Report{}, opts...)
		if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		}
	}
}

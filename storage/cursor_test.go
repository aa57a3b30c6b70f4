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

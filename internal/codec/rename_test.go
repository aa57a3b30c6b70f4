package codec

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/midgehq/midge/storage"
)

type oldLine struct {
	Item  string
	Count int
}

type oldOrder struct {
	Mail  string `json:"mail"`
	Lines []oldLine
	First *oldLine
}

type newLine struct {
	Article string `midge:"was=Item"`
	Count   int
}

type newOrder struct {
	Address string    `json:"address"    midge:"was=mail,was=Mail"`
	Rows    []newLine `midge:"was=Lines"`
	First   *newLine
	Added   string `json:",omitempty" msgpack:",omitempty"`
}

func TestARenamedFieldIsReadUnderItsEarlierName(t *testing.T) {
	was := oldOrder{Mail: "a@example.org", Lines: []oldLine{{"tea", 1}, {"cup", 2}}, First: &oldLine{"pot", 3}}
	want := newOrder{Address: "a@example.org", Rows: []newLine{{"tea", 1}, {"cup", 2}}, First: &newLine{"pot", 3}}
	p := ParametersOf(reflect.TypeFor[newOrder]())
	for _, encoding := range []string{MessagePack, JSON} {
		for name, given := range map[string]any{"before": was, "today": want} {
			data, err := Encode(encoding, given)
			if err != nil {
				t.Fatal(err)
			}
			var got newOrder
			if err := p.Decode(encoding, data, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s of %s: got %+v, %v; want %+v", encoding, name, got, err, want)
			}
		}
		for _, bad := range []string{"", "\xc1", "{", "7", "\x93\x01", "[1,2"} {
			var got newOrder
			if err := p.Decode(encoding, []byte(bad), &got); err == nil {
				t.Errorf("%s: %q was read as %+v", encoding, bad, got)
			}
		}
	}
}

func TestOldestNamesAreThoseOfBefore(t *testing.T) {
	type before struct {
		To   string
		Line oldLine
	}
	type today struct {
		Line    newLine
		Address string `midge:"was=To"`
	}
	for _, encoding := range []string{MessagePack, JSON} {
		old, err1 := Encode(encoding, before{"ann", oldLine{"tea", 1}})
		now, err2 := Encode(encoding, today{newLine{"tea", 1}, "ann"})
		want, err3 := Canonical(encoding, old)
		got, err4 := ParametersOf(reflect.TypeFor[today]()).Oldest(reflect.TypeFor[today](), encoding, now)
		if err := errors.Join(err1, err2, err3, err4); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", encoding, got, err, want)
		}
	}
}

func TestAnEarlierNameIsNoOtherFields(t *testing.T) {
	if err := CheckRenames(reflect.TypeFor[struct {
		A string `midge:"was=B"`
		B string
	}]()); err == nil {
		t.Error("a name that another field has was taken")
	} else if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
		t.Errorf("got %v, want an *InvalidError", err)
	}
	if err := CheckRenames(reflect.TypeFor[newOrder]()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

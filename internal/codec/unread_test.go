package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

type address struct{ City string }

type parcel struct {
	address

	To     string `json:"to"               midge:"was=Recipient" msgpack:"to"`
	Weight int    `msgpack:"w,alias:Grams"`
	Left   string `json:"-"                msgpack:"-"`
	hidden int
}

func TestStoredFieldsThatAreNotReadAreFound(t *testing.T) {
	_ = parcel{}.hidden
	p := ParametersOf(reflect.TypeFor[parcel]())
	for _, c := range []struct {
		encoding string
		stored   any
		want     []string
	}{
		{MessagePack, map[string]any{"to": "ann", "w": 1, "City": "Bonn"}, nil},
		{MessagePack, map[string]any{"Recipient": "ann", "Grams": 1}, nil},
		{MessagePack, map[string]any{"to": "ann", "Phone": "1"}, []string{"Phone"}},
		{MessagePack, map[string]any{"hidden": 1, "Left": 1}, []string{"Left", "hidden"}},
		{MessagePack, map[string]any{}, nil},
		{JSON, map[string]any{"TO": "ann", "weight": 1, "city": "Bonn"}, nil},
		{JSON, map[string]any{"Recipient": "ann"}, nil},
		{JSON, map[string]any{"phone": "1", "to": "ann", "fax": 2}, []string{"fax", "phone"}},
		{JSON, map[string]any{"Grams": 1, "left": 1, "address": map[string]any{"City": "Bonn"}}, []string{"Grams", "address", "left"}},
	} {
		payload, err := Encode(c.encoding, c.stored)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Unread(c.encoding, payload); !slices.Equal(got, c.want) {
			t.Errorf("%s of %v: got %q, want %q", c.encoding, c.stored, got, c.want)
		}
	}
	own := ParametersOf(reflect.TypeFor[ownDecoder]())
	within := ParametersOf(reflect.TypeFor[struct{ Own ownDecoder }]())
	if got := append(own.Unread(JSON, []byte(`{"X":1}`)), within.Unread(JSON, []byte(`{"Own":{"X":1}}`))...); got != nil {
		t.Errorf("of a type that reads itself: got %q, want nothing", got)
	}
}

// ownDecoder has its own decoder.
type ownDecoder struct{}

func (*ownDecoder) UnmarshalJSON([]byte) error { return nil }

type crate struct {
	Parcels []parcel
	ByName  map[string]*parcel
	First   *parcel
	Any     any
	Next    *crate
}

func TestUnreadFieldsAreFoundAtAnyDepth(t *testing.T) {
	type stored = map[string]any
	given := stored{"to": "ann", "Phone": "1"}
	whole := stored{
		"Parcels": []any{stored{"to": "ann"}, given, given}, "ByName": stored{"x": given}, "First": given,
		"Any": given, "Next": stored{"First": given, "Gone": []any{given}}, "Old": 1,
	}
	want := []string{"ByName[].Phone", "First.Phone", "Next.First.Phone", "Next.Gone", "Old", "Parcels[].Phone"}
	p := ParametersOf(reflect.TypeFor[crate]())
	for _, encoding := range []string{MessagePack, JSON} {
		payload, err := Encode(encoding, whole)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Unread(encoding, payload); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", encoding, got, want)
		}
		err = p.DecodeStrict(encoding, payload, new(crate))
		text := "codec.crate from " + encoding + `: got a field "ByName[].Phone", which codec.crate does not have`
		if !isDecodeError(err) || err.Error() != text {
			t.Errorf("%s: got %v, want %s", encoding, err, text)
		}
		for _, known := range []stored{
			{"First": stored{"Recipient": "ann", "to": nil}, "Any": given}, {}, {"Parcels": nil, "First": nil, "ByName": stored{"x": nil}},
		} {
			payload, err := Encode(encoding, known)
			if err == nil {
				err = p.DecodeStrict(encoding, payload, new(crate))
			}
			if err != nil {
				t.Errorf("%s of %v: got %v, want it read", encoding, known, err)
			}
		}
		if err := p.DecodeStrict(encoding, []byte("{"), new(crate)); !isDecodeError(err) {
			t.Errorf("%s: got %v, want it undecodable", encoding, err)
		}
	}
}

// A type that holds itself through a list alone is examined once.
func TestATypeWithinItselfIsExamined(t *testing.T) {
	p := ParametersOf(reflect.TypeFor[struct {
		Lists list
		Maps  table
	}]())
	for _, encoding := range []string{MessagePack, JSON} {
		if err := p.Check(encoding); err != nil {
			t.Errorf("%s: got %v, want nil", encoding, err)
		}
	}
}

// TestAFieldThatIsNotReadIsNamedInBounds checks that the names of a payload, which may be as long as the
// payload, do not make errors and heartbeats as long.
func TestAFieldThatIsNotReadIsNamedInBounds(t *testing.T) {
	p := ParametersOf(reflect.TypeFor[crate]())
	payload, err := Encode(JSON, map[string]int{strings.Repeat("x", 1<<20): 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.DecodeStrict(JSON, payload, new(crate)); err == nil || len(err.Error()) > 1000 {
		t.Errorf("got an error of %d bytes, want one of at most 1000", len(fmt.Sprint(err)))
	}
}

// TestAFieldWithinAListOfFieldsIsFound checks structs that MessagePack writes as arrays.
func TestAFieldWithinAListOfFieldsIsFound(t *testing.T) {
	p := ParametersOf(reflect.TypeFor[struct{ Row newRow }]())
	payload, err := Encode(MessagePack, map[string]any{"Row": []any{1, map[string]any{"Item": "tea", "Gone": 1}}})
	if got := p.Unread(MessagePack, payload); err != nil || !slices.Equal(got, []string{"Row.Line.Gone"}) {
		t.Errorf("got %q, %v; want Row.Line.Gone", got, err)
	}
}

package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
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

// These are types before and after their fields were renamed, with all the ways in which one holds
// another, or itself.
type (
	oldNode struct {
		Title    string
		Next     *oldNode
		Children []oldNode
		ByID     map[int]oldNode
	}
	newNode struct {
		Name  string           `midge:"was=Title"`
		Next  *newNode         `midge:"was=Next,was=Before"`
		Kids  []newNode        `midge:"was=Children"`
		Table map[int]*newNode `midge:"was=ByID"`
	}

	OldBase struct{ Mail string }
	NewBase struct {
		Address string `midge:"was=Mail"`
	}
	oldOwnName struct {
		OldBase `json:"base" msgpack:"base,noinline"`
	}
	newOwnName struct {
		NewBase `json:"base" msgpack:"base,noinline"`
	}
	newOtherName struct {
		NewBase `json:"other" midge:"was=base" msgpack:"other,noinline"`
	}

	// MessagePack writes an embedded struct with a name of a field before it under its own name.
	OldLine      struct{ Item, ID string }
	oldShadowing struct {
		ID      int `json:"-"`
		OldLine `msgpack:"Line"`
	}
	newShadowing struct {
		ID   int `json:"-"`
		Line `msgpack:"Line"`
	}
	Line struct {
		Article string `midge:"was=Item"`
		ID      string
	}

	oldRow struct {
		_msgpack struct{} `msgpack:",as_array"`
		N        int
		Line     oldLine
	}
	newRow struct {
		_msgpack struct{} `msgpack:",as_array"`
		N        int
		Line     newLine
	}
)

// newShown is written by itself as JSON alone.
type (
	oldShown struct{ Mail string }
	newShown struct {
		Address string `midge:"was=Mail"`
	}
	shownOld oldShown
)

func (s oldShown) MarshalJSON() ([]byte, error) { return json.Marshal(shownOld(s)) }
func (s newShown) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct{ Address string }{s.Address})
}

// newDefault reads itself from JSON, over its defaults.
type newDefault struct {
	Address string `midge:"was=Mail"`
	Zone    string `json:"-"         msgpack:"-"`
}

func (d *newDefault) UnmarshalJSON(data []byte) error {
	type plain newDefault
	return json.Unmarshal(data, (*plain)(d))
}

func TestARenamedFieldIsReadWhereverItIs(t *testing.T) {
	_, _ = oldRow{}._msgpack, newRow{}._msgpack
	inner := oldNode{Title: "b", Children: []oldNode{{Title: "c"}}, ByID: map[int]oldNode{}}
	oldTree := oldNode{Title: "a", Next: &inner, Children: []oldNode{inner}, ByID: map[int]oldNode{7: inner}}
	kid := newNode{Name: "b", Kids: []newNode{{Name: "c"}}, Table: map[int]*newNode{}}
	newTree := newNode{Name: "a", Next: &kid, Kids: []newNode{kid}, Table: map[int]*newNode{7: &kid}}
	type oldMaps struct {
		ByName  map[string]oldLine
		ByID    map[int64][]*oldLine
		Nested  map[bool]map[string]oldLine
		Current map[any]oldLine
	}
	type newMaps struct {
		ByName  map[string]newLine
		ByID    map[int64][]*newLine
		Nested  map[bool]map[string]newLine
		Current map[any]newLine
	}
	both := []string{MessagePack, JSON}
	for name, c := range map[string]struct {
		old, now  any
		encodings []string
	}{
		"a recursive type":            {oldTree, newTree, both},
		"a struct under its own name": {oldOwnName{OldBase{"ann"}}, newOwnName{NewBase{"ann"}}, both},
		"a renamed embedded struct":   {oldOwnName{OldBase{"ann"}}, newOtherName{NewBase{"ann"}}, both},
		"an embedded struct":          {struct{ OldBase }{OldBase{"ann"}}, struct{ NewBase }{NewBase{"ann"}}, both},
		"an embedded pointer":         {struct{ *OldBase }{&OldBase{"ann"}}, struct{ *NewBase }{&NewBase{"ann"}}, both},
		"a shadowing embedded struct": {oldShadowing{7, OldLine{"tea", "x"}}, newShadowing{7, Line{"tea", "x"}}, both[:1]},
		"map values, as MessagePack": {
			oldMaps{
				map[string]oldLine{"a": {"tea", 1}},
				map[int64][]*oldLine{1 << 40: {nil, {"cup", 2}}},
				map[bool]map[string]oldLine{true: {"b": {"pot", 3}}},
				map[any]oldLine{"c": {"tin", 4}},
			}, newMaps{
				map[string]newLine{"a": {"tea", 1}},
				map[int64][]*newLine{1 << 40: {nil, {"cup", 2}}},
				map[bool]map[string]newLine{true: {"b": {"pot", 3}}},
				map[any]newLine{"c": {"tin", 4}},
			}, both[:1],
		},
		"map keys": {
			struct{ Counts map[oldLine]int }{map[oldLine]int{{"tea", 1}: 1, {"cup", 1}: 2}},
			struct{ Counts map[newLine]int }{map[newLine]int{{"tea", 1}: 1, {"cup", 1}: 2}},
			both[:1],
		},
		"map values": {
			map[string]map[int][]*oldLine{"a": {7: {nil, {"cup", 2}}}}, struct {
				A map[int][]*newLine `midge:"was=a"`
			}{
				map[int][]*newLine{7: {nil, {"cup", 2}}},
			}, both,
		},
		"a list as a struct": {
			struct{ Row oldRow }{oldRow{N: 1, Line: oldLine{"tea", 2}}}, struct{ Row newRow }{newRow{N: 1, Line: newLine{"tea", 2}}}, both,
		},
		"an array": {
			struct{ A [1]oldLine }{[1]oldLine{{"tea", 1}}}, struct{ A [1]newLine }{[1]newLine{{"tea", 1}}}, both,
		},
		"an encoder of JSON": {struct{ S oldShown }{oldShown{"ann"}}, struct{ S newShown }{newShown{"ann"}}, both},
		"a decoder of JSON":  {struct{ S OldBase }{OldBase{"ann"}}, struct{ S newDefault }{newDefault{Address: "ann"}}, both},
		"other letters":      {map[string]string{"mail": "ann"}, NewBase{"ann"}, both[1:]},
		"an alias": {struct{ Old string }{"ann"}, struct {
			New string `midge:"was=Old" msgpack:",alias:Newer"`
		}{"ann"}, both},
	} {
		for _, encoding := range c.encodings {
			arrives(t, name, encoding, c.old, c.now)
		}
	}
}

// arrives checks that an old value arrives as the new one of a type with renamed fields.
func arrives(t *testing.T, name, encoding string, old, now any) {
	t.Helper()
	typ := reflect.TypeOf(now)
	p := ParametersOf(typ)
	data, err1 := Encode(encoding, old)
	today, err2 := p.Encode(encoding, now)
	got := reflect.New(typ)
	err3 := p.DecodeStrict(encoding, data, got.Interface())
	err := errors.Join(err1, err2, err3, p.CheckRenames(encoding))
	if err != nil || !reflect.DeepEqual(got.Elem().Interface(), now) {
		t.Errorf("%s, %s: got %+v, %v; want %+v", encoding, name, got.Elem(), err, now)
	}
	want, err1 := Canonical(encoding, data)
	oldest, err2 := p.Oldest(typ, encoding, today)
	if err := errors.Join(err1, err2); err != nil || !bytes.EqualFold(oldest, want) {
		t.Errorf("%s, oldest of %s: got %q, %v; want %q", encoding, name, oldest, err, want)
	}
}

// renamedPair returns two random types that differ in the names of fields.
func renamedPair(random *rand.Rand, depth int) (old, now reflect.Type) {
	kind := random.IntN(6)
	if depth == 0 {
		return reflect.TypeFor[string](), reflect.TypeFor[string]()
	}
	old, now = renamedPair(random, depth-1)
	switch kind {
	case 0:
		return reflect.SliceOf(old), reflect.SliceOf(now)
	case 1:
		return reflect.MapOf(reflect.TypeFor[string](), old), reflect.MapOf(reflect.TypeFor[string](), now)
	case 2:
		return reflect.MapOf(reflect.TypeFor[int](), old), reflect.MapOf(reflect.TypeFor[int](), now)
	case 3:
		return reflect.PointerTo(old), reflect.PointerTo(now)
	}
	var before, today []reflect.StructField
	for i := range 1 + random.IntN(3) {
		old, now := renamedPair(random, depth-1)
		f := reflect.StructField{Name: fmt.Sprint("F", i), Type: old}
		before = append(before, f)
		if f.Type = now; random.IntN(2) == 0 {
			f.Name, f.Tag = fmt.Sprint("G", i), reflect.StructTag(fmt.Sprintf(`midge:"was=F%d,was=H%d"`, i, i))
		}
		today = append(today, f)
	}
	return reflect.StructOf(before), reflect.StructOf(today)
}

func TestRandomRenamedTypesReadWhatWasStored(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 5))
	for range 200 {
		old, now := renamedPair(random, 5)
		before := reflect.New(old)
		Fill(before.Elem(), math.MaxInt64)
		p := ParametersOf(reflect.StructOf([]reflect.StructField{{Name: "V", Type: now}}))
		got := reflect.New(p.Type())
		for _, encoding := range []string{MessagePack, JSON} {
			data, err := Encode(encoding, map[string]any{"V": before.Interface()})
			if err == nil {
				err = p.DecodeStrict(encoding, data, got.Interface())
			}
			var today, oldest []byte
			if err == nil {
				today, err = p.Encode(encoding, got.Interface())
			}
			if err == nil {
				oldest, err = p.Oldest(p.Type(), encoding, today)
			}
			if want, _ := Canonical(encoding, data); err != nil || !bytes.Equal(oldest, want) {
				t.Fatalf("%s of %v: got %q, %v; want %q", encoding, now, oldest, err, want)
			}
		}
	}
}

// A value that two names hold is read under the newer one, whatever the case of a name of JSON.
func TestTheNewestOfTheStoredNamesIsRead(t *testing.T) {
	type job struct {
		Inner struct {
			C string `midge:"was=A,was=B" msgpack:"C,alias:D"`
		}
	}
	for _, encoding := range []string{MessagePack, JSON} {
		p := ParametersOf(reflect.TypeFor[job]())
		for _, c := range []struct {
			stored map[string]string
			want   string
		}{
			{map[string]string{"A": "a", "B": "b", "C": "c"}, "c"},
			{map[string]string{"A": "a", "B": "b"}, "b"},
			{map[string]string{"A": "a"}, "a"},
			{map[string]string{"a": "a", "b": "b"}, "b"},
			{map[string]string{"A": "a", "c": "c"}, "c"},
			{map[string]string{"A": "a", "D": "d"}, "d"},
		} {
			data, err := Encode(encoding, map[string]any{"Inner": c.stored})
			var got job
			if err == nil {
				err = p.DecodeStrict(encoding, data, &got)
			}
			unread := p.Unread(encoding, data)
			if len(unread) > 0 != (err != nil) || err == nil && got.Inner.C != c.want {
				t.Errorf("%s of %v: got %+v, %v, without %q; want %s", encoding, c.stored, got, err, unread, c.want)
			}
		}
	}
}

// These are structs in which an earlier name of a field is a name of another one.
type (
	Clash struct {
		A string `midge:"was=B" msgpack:",omitempty"`
		B string
	}
	ClashNode struct {
		Next *ClashNode
		A    string `midge:"was=B"`
		B    []ClashNode
	}
	Beside struct{ B string }
)

func TestAnEarlierNameIsNoOtherFields(t *testing.T) {
	for name, v := range map[string]any{
		"a struct": Clash{}, "a field": struct{ V Clash }{}, "a list": struct{ V []Clash }{}, "an array": struct{ V [2]Clash }{},
		"a pointer": struct{ V **Clash }{}, "a map": struct{ V map[string]*Clash }{}, "an embedded struct": struct{ Clash }{},
		"an embedded pointer": struct{ *Clash }{}, "lists of maps": struct{ V [][]map[int][]Clash }{}, "a type within itself": ClashNode{},
		"an embedded struct with a name": struct {
			Clash `json:"c" msgpack:"c,noinline"`
		}{},
		"a field of an embedded struct": struct {
			Beside
			A string `midge:"was=B"`
		}{},
		"two earlier names": struct {
			A string `midge:"was=X"`
			B string `midge:"was=X"`
		}{},
		"an earlier name beside it": struct {
			V struct {
				A string `midge:"was=B"`
				C string `midge:"was=Z,was=B"`
			}
		}{},
		"another name in JSON": struct {
			V struct {
				A string `midge:"was=B"`
				C string `json:"B"`
			}
		}{},
		"other letters in JSON": struct {
			V struct {
				A string `midge:"was=id"`
				I string `json:"ID"`
			}
		}{},
		"letters of another script in JSON": struct {
			V struct {
				A string `midge:"was=ſum"`
				B string `json:"SUM"`
			}
		}{},
		"an alias": struct {
			V struct {
				A string `midge:"was=B"`
				C string `msgpack:"C,alias:B"`
			}
		}{},
		"the name of an embedded struct": struct {
			Beside
			A Beside `midge:"was=Beside"`
		}{},
	} {
		p := ParametersOf(reflect.TypeOf(v))
		for encoding, data := range map[string]string{MessagePack: "\x80", JSON: "{}"} {
			clashes := encoding == JSON && name != "an alias" && name != "the name of an embedded struct" ||
				encoding == MessagePack && !strings.HasSuffix(name, " in JSON")
			err := p.CheckRenames(encoding)
			if errors.As(err, new(*storage.InvalidError)) != clashes ||
				clashes && !strings.Contains(err.Error(), "earlier names that no other field has") {
				t.Errorf("%s, %s: got %v, want an *InvalidError: %t", encoding, name, err, clashes)
			}
			// Tasks may have an encoding that the job had before.
			err = p.Decode(encoding, []byte(data), reflect.New(p.Type()).Interface())
			if errors.As(err, new(*DecodeError)) != clashes {
				t.Errorf("%s, %s: got %v of a task, want a *DecodeError: %t", encoding, name, err, clashes)
			}
		}
	}
	for _, v := range []any{newOrder{}, newNode{}, struct {
		V struct {
			A string `json:"a" midge:"was=A,was=a,was=B" msgpack:"A,alias:B"`
			B string `json:"-" msgpack:"-"`
		}
	}{}} {
		p := ParametersOf(reflect.TypeOf(v))
		if err := errors.Join(p.CheckRenames(MessagePack), p.CheckRenames(JSON)); err != nil {
			t.Errorf("%T: got %v, want nil", v, err)
		}
	}
}

// TestATagWithoutEffectIsRefused: a mistyped tag would otherwise leave the field empty.
func TestATagWithoutEffectIsRefused(t *testing.T) {
	wrong := func(tag string) any {
		return reflect.Zero(reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[int](), Tag: reflect.StructTag(tag)},
		})).Interface()
	}
	all := map[string]any{
		"unexported": struct {
			a int `midge:"was=B"`
		}{},
		"left out": struct {
			A int `json:"-" midge:"was=B" msgpack:"-"`
		}{},
		"embedded": struct {
			Beside `midge:"was=Base"`
		}{},
	}
	for _, tag := range []string{
		"wsa=C", "was=", "was", "was = C", "was= C", "C", "", "was=A", "was=B,was=A", "was=B,", ",was=B",
		"was=B,,was=C", "was=B,C", "Was=B", "was=B;was=C,", "-",
	} {
		all[tag] = wrong(fmt.Sprintf("midge:%q", tag))
	}
	for name, v := range all {
		typ := reflect.TypeOf(v)
		for _, typ := range []reflect.Type{typ, reflect.StructOf([]reflect.StructField{{Name: "V", Type: reflect.SliceOf(typ)}})} {
			for _, encoding := range []string{MessagePack, JSON} {
				invalid, err := (*storage.InvalidError)(nil), ParametersOf(typ).CheckRenames(encoding)
				if !errors.As(err, &invalid) || !strings.Contains(invalid.What, "tag midge of ") ||
					strings.Contains(err.Error(), "no other field") {
					t.Errorf("%s, %s: got %v, want an *InvalidError that names the tag", name, encoding, err)
				}
			}
		}
	}
	for _, v := range []any{wrong(`json:"a" midge:"was=A"`), wrong(`midge:"was=B, was=C"`), wrong(`midge:"was=A,was=B"`), wrong(`json:"-" midge:"was=B"`), struct {
		Beside `json:"b" midge:"was=Base"`
	}{}} {
		p := ParametersOf(reflect.TypeOf(v))
		if err := errors.Join(p.CheckRenames(MessagePack), p.CheckRenames(JSON)); err != nil {
			t.Errorf("%T: got %v, want nil", v, err)
		}
	}
}

package codec

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// These are structs that others embed by a pointer.
type (
	Full  struct{ ID int }
	Empty struct {
		Tags []string       `json:",omitempty"`
		Map  map[string]int `json:",omitempty" msgpack:",omitempty"`
		N    int            `json:",omitzero"  msgpack:",omitempty"`
	}
	Nil   struct{ P *int }
	Outer struct {
		*Full

		Name string
	}
	Within struct{ Outer }
	Array  struct {
		_msgpack struct{} `msgpack:",as_array"`
		*Full

		X int
	}
)

// An embedded pointer comes back as nil if it was nil, and only then.
func TestAnEmbeddedPointerComesBackAsItWas(t *testing.T) {
	_ = Array{}._msgpack
	type full struct {
		*Full

		X int
	}
	type empty struct {
		*Empty

		X int
	}
	type nested struct {
		*Outer

		X int
	}
	both, array := []string{MessagePack, JSON}, []string{MessagePack}
	for name, c := range map[string]struct {
		v       any
		refused []string // by these encodings
	}{
		"nil":                       {full{nil, 1}, nil},
		"a pointer":                 {full{&Full{7}, 1}, nil},
		"a pointer to zero":         {full{&Full{}, 0}, nil},
		"nil of empty fields":       {empty{nil, 1}, nil},
		"a pointer to a list":       {empty{&Empty{Tags: []string{"a"}}, 1}, nil},
		"a pointer to a number":     {empty{&Empty{N: 1}, 1}, nil},
		"a pointer to empty fields": {empty{&Empty{}, 1}, both},
		"a pointer to a nil":        {struct{ *Nil }{new(Nil)}, array},
		"nil within":                {nested{&Outer{nil, "x"}, 1}, nil},
		"nil above":                 {nested{nil, 1}, nil},
		"a pointer within":          {nested{&Outer{&Full{7}, "x"}, 1}, nil},
		"nil in an embedded struct": {struct{ Within }{Within{Outer{nil, "x"}}}, nil},
		"a pointer in one":          {struct{ Within }{Within{Outer{&Full{}, "x"}}}, nil},
		"an only field":             {struct{ *Full }{}, nil},
		"in parts": {struct {
			List []full
			Map  map[string]*full
		}{[]full{{nil, 1}, {&Full{}, 2}}, map[string]*full{"a": {nil, 3}, "b": {&Full{}, 4}}}, nil},
		"refused in parts":     {struct{ Map map[string][]empty }{map[string][]empty{"a": {{&Empty{}, 1}}}}, both},
		"nil in an array":      {struct{ V Array }{Array{X: 1}}, array},
		"a pointer in one too": {struct{ V Array }{Array{Full: &Full{}, X: 1}}, nil},
	} {
		for _, encoding := range both {
			data, err := Encode(encoding, c.v)
			if strings.Contains(strings.Join(c.refused, " "), encoding) {
				if !errors.As(err, new(*storage.InvalidError)) || !strings.Contains(err.Error(), "an embedded") {
					t.Errorf("%s, %s: got %v, want an *InvalidError", encoding, name, err)
				}
				continue
			}
			got := reflect.New(reflect.TypeOf(c.v))
			if err == nil {
				err = Decode(encoding, data, got.Interface())
			}
			if err != nil || !reflect.DeepEqual(got.Elem().Interface(), c.v) {
				t.Errorf("%s, %s: got %+v, %v; want %+v", encoding, name, got.Elem(), err, c.v)
			}
		}
	}
	if data, err := Encode(MessagePack, map[string]any{"V": empty{&Empty{}, 1}}); err != nil {
		t.Errorf("in an any: got %q, %v; want a map", data, err)
	}
}

// Base has a field that is stored as nil beside another one.
type Base struct {
	Tags []int
	N    int
}

// A nil that is stored replaces the value of a variable, if another field of the embedded pointer is stored.
func TestAStoredNilReplacesAValueBehindAnEmbeddedPointer(t *testing.T) {
	type outer struct {
		*Base
		X int
	}
	for _, encoding := range []string{MessagePack, JSON} {
		data, err := Encode(encoding, outer{&Base{nil, 5}, 1})
		got := outer{&Base{[]int{7}, 1}, 2}
		if err == nil {
			err = Decode(encoding, data, &got)
		}
		if err != nil || got.Tags != nil || got.N != 5 || got.X != 1 {
			t.Errorf("%s: got %+v of %+v, %v; want no tags, 5 and 1", encoding, got.Base, got, err)
		}
	}
}

// These are structs that are encoded otherwise alone than embedded: as an array, or as a text.
type (
	Row struct {
		_msgpack struct{} `msgpack:",as_array"`
		N        int      `msgpack:",omitempty"`
	}
	One      struct{ A int }
	Two      struct{ B int }
	Unstored struct {
		N int `json:"-" msgpack:"-"`
	}
	Nothing struct{}
)

func (o One) MarshalText() ([]byte, error)        { return strconv.AppendInt(nil, int64(o.A), 10), nil }
func (o *One) UnmarshalText(t []byte) (err error) { o.A, err = strconv.Atoi(string(t)); return err }
func (o Two) MarshalText() ([]byte, error)        { return strconv.AppendInt(nil, int64(o.B), 10), nil }
func (o *Two) UnmarshalText(t []byte) (err error) { o.B, err = strconv.Atoi(string(t)); return err }

// An embedded pointer is stored by the rules of the struct that embeds it, not by the rules of its own type.
func TestAnEmbeddedPointerIsStoredAsItsStructIs(t *testing.T) {
	_ = Row{}._msgpack
	type row struct {
		*Row

		X int
	}
	type texts struct {
		*One
		*Two
	}
	type none struct {
		*Nothing

		X int
	}
	type left struct {
		*Unstored

		X int
	}
	type list struct {
		_msgpack struct{} `msgpack:",as_array"`
		*Nothing

		X int
	}
	_ = list{}._msgpack
	for name, c := range map[string]struct {
		v             any
		msgpack, json bool // whether it is refused
	}{
		"a list of empty fields":            {row{&Row{}, 1}, true, false},
		"a list":                            {row{&Row{N: 1}, 1}, false, false},
		"two that are texts alone":          {texts{&One{1}, &Two{2}}, false, false},
		"nil without fields":                {none{nil, 1}, false, false},
		"a pointer without fields":          {none{&Nothing{}, 1}, true, true},
		"nil with a field that is left out": {left{nil, 1}, false, false},
		"a pointer with such a field":       {left{&Unstored{1}, 1}, true, true},
		"nil without fields in a list":      {list{X: 1}, false, false},
		"one without fields in a list":      {list{Nothing: &Nothing{}, X: 1}, true, true},
		"one in parts":                      {struct{ L []map[string]none }{[]map[string]none{{"a": {&Nothing{}, 1}}}}, true, true},
	} {
		for encoding, refused := range map[string]bool{MessagePack: c.msgpack, JSON: c.json} {
			data, err := Encode(encoding, c.v)
			got := reflect.New(reflect.TypeOf(c.v))
			if refused {
				if !errors.As(err, new(*storage.InvalidError)) || !strings.Contains(err.Error(), "an embedded") {
					t.Errorf("%s, %s: got %q, %v; want an *InvalidError", encoding, name, data, err)
				}
				continue
			}
			if err == nil {
				err = Decode(encoding, data, got.Interface())
			}
			if err != nil || !reflect.DeepEqual(got.Elem().Interface(), c.v) {
				t.Errorf("%s, %s: got %+v of %q, %v; want %+v", encoding, name, got.Elem(), data, err, c.v)
			}
		}
	}
}

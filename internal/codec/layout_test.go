package codec

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/storage"
)

// Each of these types hides its content, and has some of the methods that encode a type.
type (
	bare      struct{ n int }
	byJSON    struct{ n int }
	byBinary  struct{ n int }
	byText    struct{ n int }
	byMsgpack struct{ n int }
	byEncoder struct{ n int }
	byPointer struct{ n int }
	byValuer  struct{ n int }
	byGob     struct{ n int }
	oneWay    struct{ n int } // encodes itself, and does not decode itself
)

func (v byJSON) MarshalJSON() ([]byte, error)                { return json.Marshal(v.n) }
func (v *byJSON) UnmarshalJSON(b []byte) error               { return json.Unmarshal(b, &v.n) }
func (v byBinary) MarshalBinary() ([]byte, error)            { return []byte{byte(v.n)}, nil }
func (v *byBinary) UnmarshalBinary(b []byte) error           { v.n = int(b[0]); return nil }
func (v byText) MarshalText() ([]byte, error)                { return fmt.Append(nil, v.n), nil }
func (v *byText) UnmarshalText(b []byte) error               { _, err := fmt.Sscan(string(b), &v.n); return err }
func (v *byMsgpack) MarshalMsgpack() ([]byte, error)         { return msgpack.Marshal(v.n) }
func (v *byMsgpack) UnmarshalMsgpack(b []byte) error         { return msgpack.Unmarshal(b, &v.n) }
func (v *byEncoder) EncodeMsgpack(to *msgpack.Encoder) error { return to.Encode(v.n) }
func (v *byEncoder) DecodeMsgpack(to *msgpack.Decoder) error { return to.Decode(&v.n) }
func (v *byPointer) MarshalJSON() ([]byte, error)            { return json.Marshal(v.n) }
func (v *byPointer) UnmarshalJSON(b []byte) error            { return json.Unmarshal(b, &v.n) }
func (v byValuer) Value() (driver.Value, error)              { return int64(v.n), nil }
func (v byGob) GobEncode() ([]byte, error)                   { return []byte{byte(v.n)}, nil }
func (v *byGob) GobDecode(b []byte) error                    { v.n = int(b[0]); return nil }
func (v oneWay) MarshalJSON() ([]byte, error)                { return json.Marshal(v.n) }
func (v oneWay) MarshalBinary() ([]byte, error)              { return []byte{byte(v.n)}, nil }

// These are structs with embedded fields.
type (
	Open   struct{ ID int }
	Other  struct{ ID int }
	closed struct{ ID int }
	secret struct{ id int } //nolint:unused // the test is that it is not stored
	Secret struct{ id int } //nolint:unused // as above
	number int
	Itself struct {
		*Itself

		N int
	}
	Left      struct{ *Right }
	Right     struct{ *Left }
	loop      *loop
	ownMoment struct {
		time.Time

		N int
	}
	array struct {
		_msgpack struct{} `msgpack:",as_array"` //nolint:unused // the encoder reads it

		A int `msgpack:"x"`
		B int `msgpack:"x"`
	}
)

func (m ownMoment) MarshalBinary() ([]byte, error) {
	b, err := m.Time.MarshalBinary()
	return append(b, byte(m.N)), err
}

func (m *ownMoment) UnmarshalBinary(b []byte) error {
	m.N = int(b[len(b)-1])
	return m.Time.UnmarshalBinary(b[:len(b)-1])
}

func (m ownMoment) MarshalJSON() ([]byte, error) { return json.Marshal([]any{m.Time, m.N}) }

func (m *ownMoment) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&m.Time, &m.N})
}

// twins returns a struct with two fields of one name, which vet would refuse.
func twins() any {
	field := func(name string) reflect.StructField {
		return reflect.StructField{Name: name, Type: reflect.TypeFor[int](), Tag: `json:"x" msgpack:"x"`}
	}
	return reflect.Zero(reflect.StructOf([]reflect.StructField{field("A"), field("B")})).Interface()
}

// both stands for the same answer in both encodings.
func both(path string) [2]string { return [2]string{path, path} }

// loses has a job for each way in which a value does not come back, with the path of the field that
// an error names, in MessagePack and in JSON. "" means that the value comes back.
func loses() map[string]struct {
	job  any
	path [2]string
} {
	type c = struct {
		job  any
		path [2]string
	}
	type inner struct{ Price bare }
	return map[string]c{
		"a hidden value":         {struct{ A bare }{}, both("A")},
		"a pointer to one":       {struct{ A *bare }{}, both("A")},
		"a pointer to a pointer": {struct{ A **bare }{}, both("A")},
		"a list":                 {struct{ A []bare }{}, both("A[]")},
		"an array of pointers":   {struct{ A [2]*bare }{}, both("A[]")},
		"a map":                  {struct{ A map[string]bare }{}, both("A[]")},
		"the keys of a map":      {struct{ A map[bare]int }{}, both("A[key]")},
		"a map of lists":         {struct{ A map[string][]bare }{}, both("A[][]")},
		"a field of a list":      {struct{ Lines []inner }{}, both("Lines[].Price")},
		"an embedded struct":     {struct{ Secret }{}, both("Secret")},
		"an embedded pointer":    {struct{ *Secret }{}, both("Secret")},
		"an embedded lock": {struct {
			sync.Mutex
			N int
		}{}, both("Mutex")},
		"an atomic":                    {struct{ A atomic.Int64 }{}, both("A")},
		"a boxed atomic":               {struct{ A *atomic.Value }{}, both("A")},
		"a zone":                       {struct{ A *time.Location }{}, both("A")},
		"MarshalJSON":                  {struct{ A byJSON }{}, [2]string{"A", ""}},
		"MarshalJSON in a list":        {struct{ A []byJSON }{}, [2]string{"A[]", ""}},
		"MarshalBinary":                {struct{ A byBinary }{}, [2]string{"", "A"}},
		"MarshalText":                  {struct{ A byText }{}, both("")},
		"MarshalText of keys":          {struct{ A map[byText]int }{}, both("")},
		"MarshalMsgpack":               {struct{ A byMsgpack }{}, [2]string{"", "A"}},
		"EncodeMsgpack":                {struct{ A byEncoder }{}, [2]string{"", "A"}},
		"a method of the pointer":      {struct{ A byPointer }{}, [2]string{"A", ""}},
		"the same in a list":           {struct{ A []byPointer }{}, [2]string{"A[]", ""}},
		"the same in a map":            {struct{ A map[string]byPointer }{}, both("A[]")},
		"the same in a map, a pointer": {struct{ A map[string]*byPointer }{}, [2]string{"A[]", ""}},
		"a Valuer":                     {struct{ A byValuer }{}, both("A")},
		"GobEncode":                    {struct{ A byGob }{}, both("A")},
		"an encoder without a decoder": {struct{ A oneWay }{}, both("A")},
		"a URL with a password":        {struct{ A url.URL }{}, [2]string{"", "A.User"}},
		"the tag -": {struct {
			A bare `json:"-" msgpack:"-"`
		}{}, both("")},
		"an unexported field": {struct {
			N int
			a bare
		}{}, both("")},
		"an empty struct": {struct {
			A struct{}
			B map[string]struct{}
		}{}, both("")},
		"an unexported embedded one": {struct {
			secret
			N int
		}{}, both("")},
		"a pointer to one unexported": {struct {
			*secret
			N int
		}{}, both("")},
		"a struct with tagged fields": {struct {
			A struct {
				B int `json:"-" msgpack:"-"`
				c int
			}
		}{}, both("")},
		"types of the library": {struct {
			A time.Time
			B *big.Int
			C big.Rat
			D netip.Addr
			E sql.NullTime
			F json.RawMessage
			G time.Duration
			H map[time.Time]json.Number
		}{}, both("")},

		"a promoted method": {struct {
			time.Time
			N int
		}{}, both("N")},
		"of a pointer": {struct {
			*big.Int
			Note string
		}{}, both("Note")},
		"beside another embedded": {struct {
			time.Time
			closed
		}{}, both("ID")},
		"within a list": {struct {
			A []struct {
				time.Time
				N int
			}
		}{}, both("A[].N")},
		"of a list": {struct {
			json.RawMessage
			N int
		}{}, [2]string{"", "N"}},
		"of MessagePack alone": {struct {
			byBinary
			N int
		}{}, [2]string{"N", ""}},
		"a promoted method alone": {struct{ time.Time }{}, both("")},
		"beside a field that is left": {struct {
			time.Time
			N int `json:"-" msgpack:"-"`
		}{}, both("")},
		"beside an unexported field": {struct {
			time.Time
			n int
		}{}, both("")},
		"a named field": {struct {
			At time.Time
			N  int
		}{}, both("")},
		"a method of its own": {ownMoment{}, both("")},
		"methods that hide one another": {struct {
			time.Time
			big.Int
		}{}, [2]string{"Int", "Time"}}, // time.Time alone has MarshalBinary
		"the same of JSON": {struct {
			netip.Addr
			time.Time
		}{}, [2]string{"", "Addr"}},

		"two fields of a name": {twins(), both("A")},
		"a name of another": {struct {
			X int
			B int `json:"X" msgpack:"X"`
		}{}, both("X")},
		"a shadowed field": {struct {
			Open
			ID int
		}{}, both("Open.ID")},
		"a shadow before": {struct {
			ID int
			Open
		}{}, [2]string{"", "Open.ID"}},
		"two embedded": {struct {
			Open
			Other
		}{}, [2]string{"", "Open.ID"}},
		"two embedded with names": {struct {
			Open  `json:"a"`
			Other `json:"b"`
		}{}, both("")},
		"an alias of another": {struct {
			A int
			B int `msgpack:"b,alias:A"`
		}{}, [2]string{"A", ""}},
		"an array": {array{}, both("")},
		"a value that seems empty": {struct {
			A netip.Addr `msgpack:",omitempty"`
		}{}, [2]string{"A", ""}},
		"one in a list": {struct {
			Lines []struct {
				A *int    `msgpack:",omitempty"`
				B big.Int `msgpack:"b,omitempty"`
			}
		}{}, [2]string{"Lines[].B", ""}},
		"one of a struct with the option": {struct {
			_msgpack struct{} `msgpack:",omitempty"`

			A byText
		}{}, [2]string{"A", ""}},
		"values that are left out where empty": {struct {
			A time.Time   `msgpack:",omitempty"`
			B *netip.Addr `msgpack:",omitempty"`
			C []byText    `msgpack:",omitempty"`
			D Open        `msgpack:",omitempty"`
			E struct{}    `msgpack:",omitempty"`
			F any         `msgpack:",omitempty"`
			G ownMoment   `msgpack:",omitempty"`
		}{}, both("")},
		"an array of fields": {struct {
			_msgpack struct{} `msgpack:",as_array"`

			A byText `msgpack:",omitempty"`
		}{}, both("")},
		"an inlined shadow": {struct {
			ID   int
			Open `msgpack:",inline"`
		}{}, both("Open.ID")},
		"a shadow not inlined": {struct {
			Open `json:"open" msgpack:",noinline"`
			ID   int
		}{}, both("")},
		"a type within itself":      {Itself{}, both("Itself")},
		"types within one another":  {struct{ A []Left }{}, both("A[].Right.Left")},
		"a pointer to itself":       {struct{ A loop }{}, both("A")},
		"a list of pointers itself": {struct{ A []loop }{}, both("A[]")},
	}
}

func TestATypeThatLosesValuesIsRefused(t *testing.T) {
	for name, c := range loses() {
		for i, encoding := range []string{MessagePack, JSON} {
			p := ParametersOf(reflect.TypeOf(c.job))
			wantPath(t, name+" as "+encoding, p.Check(encoding), c.path[i])
			_, err := Encode(encoding, c.job)
			if path := c.path[i]; name == "an encoder without a decoder" { // the reader may be another program
				wantPath(t, name+" as "+encoding, err, "")
			} else {
				wantPath(t, name+" as "+encoding, err, path)
			}
		}
	}
}

// wantPath checks that an error is an *InvalidError that names a field; "" is no error.
func wantPath(t *testing.T, name string, err error, path string) {
	t.Helper()
	var invalid *storage.InvalidError
	switch {
	case path == "" && err != nil:
		t.Errorf("%s: got %v, want nil", name, err)
	case path != "" && (!errors.As(err, &invalid) || !strings.HasPrefix(invalid.What, "field "+path+" of ")):
		t.Errorf("%s: got %v, want an *InvalidError about field %s", name, err, path)
	}
}

type (
	shaper2 interface{ Area() float64 }
	Base2   struct{ Shape shaper2 }
)

func TestATypeThatCannotBeDecodedIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		job  any
		path [2]string
	}{
		"an interface of its own": {struct{ A shaper2 }{}, both("A")},
		"an error":                {struct{ A error }{}, both("A")},
		"a context":               {struct{ A context.Context }{}, both("A")},
		"an embedded context":     {struct{ context.Context }{}, both("Context")},
		"a marshaler":             {struct{ A json.Marshaler }{}, both("A")},
		"a list":                  {struct{ A []error }{}, both("A[]")},
		"a map of pointers":       {struct{ A map[string]*io.Reader }{}, both("A[]")},
		"keys":                    {struct{ A map[error]int }{}, both("A[key]")},
		"an embedded struct":      {struct{ Base2 }{}, both("Base2.Shape")},
		"any": {struct {
			A any
			B []any
			C map[string]any
		}{}, both("")},
		"a field that is left out": {struct {
			A error `json:"-" msgpack:"-"`
		}{}, both("")},
		"an unexported field": {struct {
			N   int
			err error
		}{}, both("")},
		"an unexported embedded error": {struct {
			N int
			error
		}{}, [2]string{"error", ""}},
		"an embedded pointer": {struct{ *closed }{}, both("closed")},
		"a deep one":          {struct{ A []struct{ *closed } }{}, both("A[].closed")},
		"the struct":          {struct{ closed }{}, both("")},
		"an exported one":     {struct{ *Open }{}, both("")},
		"a pointer with a name": {struct {
			closed *closed
			N      int
		}{}, both("")},
		"a tagged pointer": {struct {
			*closed `json:"c" msgpack:"c,noinline"`
		}{}, both("closed")},
		"an unexported number": {struct {
			number
			N int
		}{}, [2]string{"number", ""}},
	} {
		for i, encoding := range []string{MessagePack, JSON} {
			wantPath(t, name+" as "+encoding, ParametersOf(reflect.TypeOf(c.job)).Check(encoding), c.path[i])
		}
	}
}

type (
	Deep  struct{ Open }
	Deep2 struct{ Deep }
	Wide  struct{ ID, Name int }
	Named struct {
		Open `json:"open" msgpack:"open"`
	}
)

// A layout is right if exactly the types that are accepted come back as they were, by the
// encoders alone.
func TestALayoutIsThatOfTheEncoder(t *testing.T) {
	for _, job := range []any{
		struct{ Open }{},
		struct{ closed }{},
		struct{ *Open }{},
		struct{ *closed }{},
		struct {
			N int
			number
		}{},
		struct {
			Open
			Other
		}{},
		struct {
			Open
			closed
		}{},
		struct {
			Deep
			Open
		}{},
		struct {
			Open
			Deep
		}{},
		struct {
			Deep
			Other
		}{},
		struct {
			Deep2
			Name int
		}{},
		struct {
			Deep2
			*Open
		}{},
		struct {
			Deep2
			ID int
		}{},
		struct {
			ID int
			Deep2
		}{},
		struct {
			Wide
			ID int
		}{},
		struct {
			ID int
			Wide
		}{},
		struct {
			Wide
			Open
		}{},
		struct {
			Open
			Wide
		}{},
		struct {
			*Wide
			Name int
		}{},
		struct {
			Open
			Open2 int `json:"ID" msgpack:"ID"`
		}{},
		struct {
			Open2 int `json:"ID" msgpack:"ID"`
			Open
		}{},
		struct {
			A int `json:"B" msgpack:"B"`
			B int `json:"A" msgpack:"A"`
		}{},
		struct {
			A int `json:"B" msgpack:"B"`
			B int
		}{},
		struct {
			Open `json:"x" msgpack:"x"`
			ID   int
		}{},
		struct {
			ID   int
			Open `json:"x" msgpack:"x"`
		}{},
		struct {
			Open `msgpack:",noinline"`
			ID   int
		}{},
		struct {
			Open `msgpack:",noinline"`
			Other
		}{},
		struct {
			Open  `msgpack:",inline"`
			Other `msgpack:",inline"`
		}{},
		struct {
			closed `msgpack:",noinline"`
			ID     int
		}{},
		struct {
			*closed `msgpack:",noinline"`
		}{},
		struct {
			*closed `json:"x"`
		}{},
		struct {
			Named
			Other
		}{},
		struct {
			Named
			Open int
		}{},
		struct {
			Name int `json:"Open" msgpack:"Open"`
			Open
		}{},
		struct {
			Open
			Name int `json:"Open" msgpack:"Open"`
		}{},
		struct {
			A int `msgpack:"a,alias:b"`
			B int `msgpack:"b"`
		}{},
		struct {
			B int `msgpack:"b"`
			A int `msgpack:"a,alias:b"`
		}{},
		struct {
			A int `json:"-,"`   //nolint:staticcheck // the name is -
			B int `json:"it's"` //nolint:staticcheck // the name is not valid
		}{},
		struct {
			A int `json:"a"`
			B int `json:"A"`
		}{},
		array{},
		struct {
			A []struct {
				Deep
				ID int
			}
			B map[string]struct {
				*Open
				Other
			}
		}{},
		struct {
			A *struct {
				Open
				Name int
			}
		}{},
	} {
		typ := reflect.TypeOf(job)
		for _, encoding := range []string{MessagePack, JSON} {
			example, back := reflect.New(typ), reflect.New(typ)
			n := 0
			count(example.Elem(), &n)
			data, err := marshal(encoding, example.Interface())
			if err == nil {
				err = unknown.decodeAs(encoding, data, back.Interface())
			}
			comes := err == nil && reflect.DeepEqual(example.Interface(), back.Interface())
			if bad := ParametersOf(typ).Check(encoding); (bad == nil) != comes {
				t.Errorf("%v as %s: got %v, but it comes back: %t, %v: %s", typ, encoding, bad, comes, err, data)
			}
		}
	}
}

// count sets the exported integers within a value to 1, 2, 3 and so on.
func count(v reflect.Value, n *int) {
	if !v.CanSet() && v.Kind() != reflect.Struct {
		v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	}
	switch v.Kind() {
	case reflect.Int:
		*n++
		v.SetInt(int64(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		count(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		count(v.Index(0), n)
		count(v.Index(1), n)
	case reflect.Map:
		one := reflect.New(v.Type().Elem()).Elem()
		count(one, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), one)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() || f.Anonymous && pointed(f.Type).Kind() == reflect.Struct {
				count(v.Field(i), n)
			}
		}
	default:
	}
}

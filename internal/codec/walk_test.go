package codec

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// These types can contain themselves.
type (
	Customer struct {
		Name   string
		Orders []*Order
	}
	Order struct{ Customer *Customer }
	link  struct{ Next *link }
	table map[string]table
	list  []list
	boxed struct{ Any any }
	tree  struct {
		Kids  map[string]*tree
		Pair  [2]*tree
		Left  *tree
		Right *tree
	}
)

// cycles returns values that contain themselves, or are too deep for an encoder.
func cycles() map[string]any {
	customer := &Customer{Name: "ann"}
	customer.Orders = []*Order{{customer}}
	byMap := &tree{}
	byMap.Kids = map[string]*tree{"a": byMap}
	byArray := &tree{}
	byArray.Pair[1] = byArray
	byPointer := &link{}
	byPointer.Next = &link{byPointer}
	ofMaps := table{}
	ofMaps["a"] = ofMaps
	ofLists := make(list, 1)
	ofLists[0] = ofLists
	anyMap := map[string]any{}
	anyMap["a"] = []any{anyMap}
	anyList := make([]any, 1)
	anyList[0] = anyList
	var anyPointer any
	anyPointer = &anyPointer
	inAny := &boxed{}
	inAny.Any = inAny
	keys := map[any]int{}
	key := &boxed{}
	key.Any = [1]any{key}
	keys[key] = 1
	far := &link{}
	for range 5_000_000 {
		far = &link{far}
	}
	return map[string]any{
		"customer and order": customer, "an order": Order{customer}, "a map": byMap, "an array": byArray, "a pointer": byPointer,
		"maps": ofMaps, "lists": ofLists, "an any of maps": boxed{anyMap}, "an any of lists": boxed{anyList},
		"an any of a pointer": boxed{anyPointer}, "a struct in its any": inAny, "a map alone": anyMap, "a list alone": anyList,
		"a pointer alone": anyPointer, "a long list": far, "a long list in an any": boxed{far}, "an array in an any": boxed{[1]any{anyMap}},
		"a map of integers": boxed{map[int]any{1: anyMap}}, "deep within": boxed{map[string][]*Customer{"a": {customer}}},
	}
}

const tooDeep = ` "nested too deep": want at most 100 levels`

// The path begins at the field by which somebody finds the value, and has eight steps at most.
func TestNestingTooDeepNamesItsField(t *testing.T) {
	straight := &link{}
	for range maxDepth {
		straight = &link{straight}
	}
	values := cycles()
	for _, encoding := range []string{MessagePack, JSON} {
		for path, v := range map[string]any{
			"field Orders[].Customer.Orders[].Customer.Orders[]… of codec.Customer": values["customer and order"],
			"field Kids[].Kids[].Kids[].Kids[]… of codec.tree":                      values["a map"],
			"field Any[][][][][][][]… of codec.boxed":                               values["an any of lists"],
			"field Next.Next.Next.Next.Next.Next.Next.Next… of codec.link":          straight,
			"field Any.Name of codec.boxed":                                         boxed{struct{ Name any }{values["a pointer alone"]}},
			"value":                                                                 values["a pointer alone"],
		} {
			_, err := Encode(encoding, v)
			if want := "invalid " + path + tooDeep; err == nil || !strings.HasSuffix(err.Error(), ": "+want) {
				t.Errorf("%T as %s: got %v, want %s", v, encoding, err, want)
			}
		}
	}
}

func TestAValueThatContainsItselfIsTooDeep(t *testing.T) {
	values := cycles()
	for _, encoding := range []string{MessagePack, JSON} {
		for name, v := range values {
			_, err := Encode(encoding, v)
			begins := fmt.Sprintf("encode %T as %s: invalid ", Addressable(v), encoding)
			if err == nil || !strings.HasPrefix(err.Error(), begins) || !strings.HasSuffix(err.Error(), tooDeep) {
				t.Errorf("%s as %s: got %v, want %s…%s", name, encoding, err, begins, tooDeep)
			}
			_, err = Encode(encoding, boxed{[]any{v}})
			wantsTooDeep(t, encoding, err)
		}
	}
	keys := map[any]int{}
	key := &boxed{}
	key.Any = key
	keys[key] = 1
	_, err := Encode(MessagePack, keys)
	wantsTooDeep(t, MessagePack, err)
}

// The levels of data are counted, not the pointers and interfaces on the way to them.
func TestPointersAddNoLevel(t *testing.T) {
	for _, encoding := range []string{MessagePack, JSON} {
		for levels, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
			straight := &link{}
			for range levels - 1 {
				straight = &link{straight}
			}
			var any1 any = "x"
			for range levels {
				any2 := any1
				any1 = &boxed{&any2}
			}
			for _, v := range []any{straight, any1} {
				_, err := Encode(encoding, v)
				if ok && err != nil {
					t.Errorf("%s: %d levels of %T: got %v, want them encoded", encoding, levels, v, err)
				}
				if !ok {
					wantsTooDeep(t, encoding, err)
				}
			}
		}
	}
}

// One value that stands in many places is encoded in each. If that takes more than any task may
// hold, the encoder is not even called.
func TestAValueOfTooManyPartsIsRefused(t *testing.T) {
	node := &tree{}
	for range 60 {
		node = &tree{Left: node, Right: node}
	}
	of := shapeOf(MessagePack, reflect.TypeOf(node))
	w := walk{encoding: MessagePack, left: 1000} // of a whole value it is storage.MaxPayloadCap
	if p := w.value(of, reflect.ValueOf(node), 0); p == nil || p.whole == nil || p.whole.Error() != errTooMany().Error() {
		t.Errorf("got %+v, want an error about the number of parts", p)
	}
	small := &tree{Left: &tree{}, Right: &tree{}}
	small.Left.Pair = [2]*tree{small.Right, small.Right}
	if _, err := Encode(MessagePack, small); err != nil {
		t.Errorf("a value in three places: got %v, want nil", err)
	}
}

func TestTypesThatCannotContainThemselvesPayNothing(t *testing.T) {
	for _, encoding := range []string{MessagePack, JSON} {
		for v, open := range map[any]bool{
			new(inner): true, new(boxed): true, new(Order): true, new(table): true, new(*list): true,
			new(struct {
				A []struct{ B map[string]*[3]oldOrder }
			}): false, new(time.Time): false, new(struct{ A json.RawMessage }): false,
			new(struct {
				A, B oldLine // twice, but not within itself
			}): false,
		} {
			if s := shapeOf(encoding, reflect.TypeOf(v)); s.open != open {
				t.Errorf("%T as %s: got %t, want %t", v, encoding, s.open, open)
			}
		}
	}
	if s := shapeOf(JSON, reflect.TypeFor[struct {
		A []int
		B *float64
		C time.Duration
	}]()); s.text {
		t.Error("a type without texts is searched for texts")
	}
}

func TestAValueInAnAnyIsHeldToTheSameRules(t *testing.T) {
	for name, c := range loses() {
		if name == "an encoder without a decoder" || strings.Contains(name, "of the pointer") ||
			name == "types of the library" || name == "a URL with a password" || strings.Contains(name, "codeMsgpack") ||
			name == "MarshalMsgpack" {
			continue // a value in an any is read as no type, and has no methods of its pointer
		}
		for i, encoding := range []string{MessagePack, JSON} {
			for at, v := range map[string]any{
				"Any.": boxed{c.job}, "Any[].": boxed{[]any{1, c.job}}, "Any[][].": boxed{map[string]any{"a": []any{c.job}}},
				"Any.Any.": boxed{&boxed{c.job}},
			} {
				path := c.path[i]
				if path != "" {
					path = at + path
				}
				_, err := Encode(encoding, v)
				wantPath(t, name+" in "+at+" as "+encoding, err, path)
			}
		}
	}
	for _, encoding := range []string{MessagePack, JSON} {
		_, err := Encode(encoding, boxed{bare{1}})
		wantPath(t, "bare", err, "Any")
		_, err = Encode(encoding, boxed{errors.New("a text")})
		wantPath(t, "an error", err, "Any")
		_, err = Encode(encoding, bare{1})
		if invalid := (*storage.InvalidError)(nil); !errors.As(err, &invalid) || invalid.What != "value" {
			t.Errorf("bare alone: got %v, want an *InvalidError about the value", err)
		}
	}
	_, err := Encode(JSON, boxed{byPointer{1}}) // its method needs a pointer
	wantPath(t, "by pointer", err, "Any")
	_, err = Encode(JSON, boxed{&byPointer{1}})
	wantPath(t, "a pointer", err, "")
}

// A result is read by its own type, as a job is. Its type alone proves nothing: the value may be nil.
func TestAValueOfAnInterfaceWithMethodsIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		v    any
		path [2]string
	}{
		"a value":             {struct{ A fmt.Stringer }{time.Second}, both("A")},
		"one in a list":       {[]fmt.Stringer{nil, time.Second}, both("[]")},
		"one in an any":       {boxed{struct{ A fmt.Stringer }{time.Second}}, both("Any.A")},
		"nil":                 {struct{ A fmt.Stringer }{}, both("")},
		"an error":            {struct{ A error }{errors.New("a text")}, [2]string{"", "A"}},
		"an embedded pointer": {struct{ *closed }{&closed{1}}, both("closed")},
	} {
		for i, encoding := range []string{MessagePack, JSON} {
			data, err := Encode(encoding, c.v)
			wantPath(t, name+" as "+encoding, err, c.path[i])
			if err != nil {
				continue
			}
			if back := reflect.New(reflect.TypeOf(c.v)); Decode(encoding, data, back.Interface()) != nil ||
				!reflect.DeepEqual(back.Elem().Interface(), c.v) {
				t.Errorf("%s as %s: got %+v, want %+v", name, encoding, back.Elem(), c.v)
			}
		}
	}
}

func TestAnAnyIsNotLeftOutWhereItSeemsEmpty(t *testing.T) {
	type job struct {
		V any `json:",omitempty" msgpack:",omitempty"`
	}
	for path, values := range map[string][]any{
		"": {
			nil, 7,
			Open{},
			byText{},
			&byText{7},
			[]byText{{7}},
			time.Unix(0, 0), []int(nil), map[string]int(nil), (*int)(nil),
			(*price)(nil), new(int), new(""),
			price{7},
			&price{7}, 0.5, "a", true,
			[1]int{},
			[]any{nil},
			new(any(0)),
		},
		"V": {
			byText{7},
			netip.IPv6Loopback(), 0, int8(0), uint(0), float32(0), 0.0, math.Copysign(0, -1), false, "",
			time.Time{},
			[]int{},
			map[string]int{},
			[0]int{},
			time.Duration(0),
			price{},
			&price{}, new(time.Time), json.Number(""),
		},
	} {
		for _, v := range values {
			_, err := Encode(MessagePack, job{v})
			wantPath(t, fmt.Sprintf("%T", v), err, path)
			_, err = Encode(JSON, job{v})
			wantPath(t, fmt.Sprintf("%T as JSON", v), err, "")
		}
	}
}

func TestKeysThatBecomeOneAreRefused(t *testing.T) {
	at := time.Date(2026, 3, 8, 0, 30, 0, 0, time.UTC)
	in := func(zone string, hours int) time.Time { return at.In(time.FixedZone(zone, 3600*hours)) }
	for name, c := range map[string]struct {
		v    any
		path [2]string
	}{
		"two moments":           {map[time.Time]int{at: 1, at.Add(1): 2}, both("")},
		"one in two zones":      {map[time.Time]int{in("a", 1): 1, in("a", 2): 2}, [2]string{"[key]", ""}},
		"one in one zone":       {map[time.Time]int{in("a", 1): 1, in("b", 1): 2}, both("[key]")},
		"two texts":             {map[byText]int{{1}: 1, {2}: 2}, both("")},
		"a structure":           {map[[2]Open]int{{{1}, {2}}: 1, {{2}, {1}}: 2}, [2]string{"", "unsupported"}},
		"numbers":               {map[any]int{1: 1, 1.5: 2, "1": 3, true: 4, at: 5}, [2]string{"", "unsupported"}},
		"a number of two types": {struct{ M map[any]int }{map[any]int{1: 1, int8(1): 2}}, [2]string{"M[key]", "unsupported"}},
		"an array in an any":    {map[any]int{[1]int{1}: 1}, [2]string{"[key]", "unsupported"}},
		"within an any":         {boxed{map[time.Time][]byText{at: {{1}}}}, both("")},
		"bytes within an any":   {boxed{[]any{map[byText]int{{1}: 1}}}, both("")}, // they are read as a text
		"a struct within":       {boxed{map[Open]int{{1}: 1}}, [2]string{"Any[key]", "unsupported"}},
	} {
		for i, encoding := range []string{MessagePack, JSON} {
			data, err := Encode(encoding, c.v)
			switch path := c.path[i]; {
			case path == "unsupported" && err == nil:
				t.Errorf("%s as %s: got no error", name, encoding)
			case path != "unsupported":
				wantPath(t, name+" as "+encoding, err, path)
			}
			if err != nil {
				continue
			}
			back := reflect.New(reflect.TypeOf(c.v))
			if err := Decode(encoding, data, back.Interface()); err != nil ||
				back.Elem().Kind() == reflect.Map && back.Elem().Len() != reflect.ValueOf(c.v).Len() {
				t.Errorf("%s as %s: got %v, %v; want %v", name, encoding, back.Elem(), err, c.v)
			}
		}
	}
}

// These types have text wherever text can be.
type (
	name  string
	latin struct{ b string }
	texts struct {
		Text   string
		Name   name
		List   []string
		Map    map[string]name
		ByText map[latin]int
		Own    latin
		Ptr    *latin
		Raw    json.RawMessage
		JSON   rawLatin
		Any    any
		Quoted string `json:",string"`
	}
	rawLatin struct{ b string }
	twofold  struct{ latin } // as a key it is a text, whatever its MarshalJSON writes
)

func (twofold) MarshalJSON() ([]byte, error) { return []byte("0"), nil }

func (l latin) MarshalText() ([]byte, error)     { return []byte(l.b), nil }
func (l *latin) UnmarshalText(b []byte) error    { l.b = string(b); return nil }
func (r rawLatin) MarshalJSON() ([]byte, error)  { return []byte(`"` + r.b + `"`), nil }
func (r *rawLatin) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &r.b) }

func TestTextThatIsNotUTF8IsRefusedAsJSON(t *testing.T) {
	const bad = "caf\xe9"
	fine := texts{Raw: json.RawMessage("null")}
	for path, set := range map[string]func(v *texts){
		"Text":        func(v *texts) { v.Text = bad },
		"Name":        func(v *texts) { v.Name = bad },
		"List[]":      func(v *texts) { v.List = []string{"a", bad} },
		"Map[]":       func(v *texts) { v.Map = map[string]name{"a": bad} },
		"Map[key]":    func(v *texts) { v.Map = map[string]name{bad: "a"} },
		"ByText[key]": func(v *texts) { v.ByText = map[latin]int{{bad}: 1} },
		"Own":         func(v *texts) { v.Own.b = bad },
		"Ptr":         func(v *texts) { v.Ptr = &latin{bad} },
		"Raw":         func(v *texts) { v.Raw = json.RawMessage(`"` + bad + `"`) },
		"JSON":        func(v *texts) { v.JSON.b = bad },
		"Any":         func(v *texts) { v.Any = bad },
		"Any[]":       func(v *texts) { v.Any = []any{map[string]any{"a": "b"}, bad} },
		"Any[key]":    func(v *texts) { v.Any = map[string]any{bad: 1} },
		"Any.Text":    func(v *texts) { v.Any = &texts{Text: bad, Raw: fine.Raw} },
		"Quoted":      func(v *texts) { v.Quoted = bad },
	} {
		v := fine
		set(&v)
		_, err := Encode(JSON, v)
		wantPath(t, path, err, path)
		if err != nil && strings.Contains(err.Error(), "caf") {
			t.Errorf("%s: %v quotes the text", path, err)
		}
	}
	_, err := Encode(JSON, map[twofold]int{{latin{bad}}: 1})
	wantPath(t, "a key with two methods", err, "[key]")
	_, err = Encode(JSON, map[*latin]string{nil: `\ufffd`})
	wantPath(t, "a nil key", err, "")
	_, err = Encode(JSON, map[string]int{"a\xff": 1, "a\xfe": 2})
	wantPath(t, "two keys that become one", err, "[key]")
	if _, err := Encode(JSON, bad); !errors.As(err, new(*storage.InvalidError)) {
		t.Errorf("a text alone: got %v, want an *InvalidError", err)
	}
	type words struct {
		Text  string
		Map   map[string]name
		Bytes []byte
	}
	want := words{bad, map[string]name{bad: bad}, []byte(bad)}
	data, err := Encode(MessagePack, want)
	var got words
	if err := errors.Join(err, Decode(MessagePack, data, &got)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("as MessagePack: got %+v, %v; want %+v", got, err, want)
	}
	if _, err := Encode(JSON, struct{ Bytes []byte }{[]byte(bad)}); err != nil {
		t.Errorf("bytes: got %v, want nil", err)
	}
}

// The character that stands for bytes that are not UTF-8 is itself a character.
func TestTheReplacementCharacterIsText(t *testing.T) {
	want := texts{
		Text: "\ufffd", Name: `\ufffd`, Map: map[string]name{`\ufffd`: "\ufffd"}, Own: latin{`\\ufffd`},
		Raw: json.RawMessage(`"\ufffd \ud83d\ude00"`), JSON: rawLatin{`\ufffd`}, Any: map[string]any{"a": `\ufffd`},
	}
	data, err := Encode(JSON, want)
	if err != nil {
		t.Fatal(err)
	}
	var got texts
	if err := Decode(JSON, data, &got); err != nil || got.Text != want.Text || got.Name != want.Name || !maps.Equal(got.Map, want.Map) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestShownTextIsUTF8(t *testing.T) {
	b, err := EncodeShown(texts{Text: "caf\xe9", Raw: json.RawMessage("\"caf\xe9\""), Own: latin{"\xff"}})
	if err != nil {
		t.Fatal(err)
	}
	var got texts
	if err := DecodeShown(b, &got); err != nil || got.Text != "caf\ufffd" || string(got.Raw) != "\"caf\ufffd\"" || got.Own.b != "\ufffd" {
		t.Errorf("got %q, %v; want U+FFFD for the bytes that are not UTF-8", b, err)
	}
	if _, err := EncodeShown(bare{1}); err == nil {
		t.Error("a value that hides its fields is shown as empty")
	}
}

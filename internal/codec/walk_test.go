package codec

import (
	"encoding/json"
	"errors"
	"fmt"
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

func TestAValueThatContainsItselfIsTooDeep(t *testing.T) {
	values := cycles()
	for _, encoding := range []string{MessagePack, JSON} {
		for name, v := range values {
			_, err := Encode(encoding, v)
			want := fmt.Sprintf("encode %T as %s: %v", Addressable(v), encoding, errTooDeep())
			if err == nil || err.Error() != want {
				t.Errorf("%s as %s: got %v, want %s", name, encoding, err, want)
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

// One value that stands in many places is encoded in each. Where that takes more than any task may
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

package codec

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"net"
	"reflect"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// comesBack checks that a value in a field comes back as it was, or that it is refused by an *InvalidError.
func comesBack[T any](t *testing.T, name, encoding string, v T, refused bool) {
	t.Helper()
	data, err := Encode(encoding, &struct{ V T }{v})
	if refused {
		if !errors.As(err, new(*storage.InvalidError)) {
			t.Errorf("%s, %s: got %q, %v; want an *InvalidError", encoding, name, data, err)
		}
		return
	}
	var got struct{ V T }
	if err == nil {
		err = Decode(encoding, data, &got)
	}
	if err != nil || !reflect.DeepEqual(got.V, v) {
		t.Errorf("%s, %s: got %#v of %q, %v; want %#v", encoding, name, got.V, data, err, v)
	}
}

func TestAPointerToNilIsRefused(t *testing.T) {
	var (
		list   []string
		table  map[string]int
		number *int
		value  any
		data   []byte
		big0   *big.Int
	)
	one := 1
	pointer := &one
	type deep struct {
		M map[string][]*[]string
	}
	for _, encoding := range []string{MessagePack, JSON} {
		comesBack(t, "a list", encoding, &list, true)
		comesBack(t, "a map", encoding, &table, true)
		comesBack(t, "a pointer", encoding, &number, true)
		comesBack(t, "an any", encoding, &value, true)
		comesBack(t, "bytes", encoding, &data, true)
		comesBack(t, "a type with an encoder", encoding, &big0, true)
		comesBack(t, "in parts", encoding, deep{map[string][]*[]string{"a": {&list}}}, true)
		comesBack(t, "an item", encoding, [1]*[]string{&list}, true)
		comesBack(t, "nil", encoding, (*[]string)(nil), false)
		comesBack(t, "an empty list", encoding, &[]string{}, false)
		comesBack(t, "a pointer to a number", encoding, &pointer, false)
		comesBack(t, "a pointer to an any", encoding, new(any("a")), false)
		comesBack(t, "in parts too", encoding, deep{map[string][]*[]string{"a": {nil, {"a"}}}}, false)
		if result, err := Encode(encoding, &list); err != nil { // it is read as the list
			t.Errorf("%s alone: got %q, %v; want nil", encoding, result, err)
		}
	}
}

// price is zero if it has no cents.
type price struct{ Cents int }

func (p price) IsZero() bool { return p.Cents == 0 }

func TestAPointerToZeroIsNotLeftOut(t *testing.T) {
	type order struct {
		Price *price     `json:",omitzero" msgpack:",omitempty"`
		At    *time.Time `json:",omitzero" msgpack:",omitempty"`
		N     *int       `json:",omitzero" msgpack:",omitempty"`
	}
	type all struct {
		_msgpack struct{} `msgpack:",omitempty"`
		Price    *price   `json:",omitempty"`
	}
	type list struct {
		_msgpack struct{} `msgpack:",as_array"`
		Price    *price   `msgpack:",omitempty"`
	}
	_, _ = all{}._msgpack, list{}._msgpack
	for _, encoding := range []string{MessagePack, JSON} {
		comesBack(t, "a zero of its own", encoding, order{Price: &price{}}, true)
		comesBack(t, "a zero moment", encoding, order{At: new(time.Time)}, true)
		comesBack(t, "in parts", encoding, map[string][]order{"a": {{Price: &price{}}}}, true)
		comesBack(t, "a zero number", encoding, order{N: new(int)}, false)
		comesBack(t, "nil", encoding, order{}, false)
		comesBack(t, "a price", encoding, []order{{Price: &price{7}}}, false)
		comesBack(t, "omitempty of the struct", encoding, all{Price: &price{}}, encoding == MessagePack)
		comesBack(t, "a list", encoding, list{Price: &price{}}, false)
	}
}

func TestAMomentOfAZoneWithSecondsIsRefusedAsJSON(t *testing.T) {
	local := time.FixedZone("LMT", -(4*60*60 + 56*60 + 2)) // of New York until 1883
	type visit struct{ At time.Time }
	for at, refused := range map[time.Time]bool{
		time.Unix(0, 0).In(local): true, time.Time{}.In(local): true,
		time.Unix(0, 0).In(time.FixedZone("", -60*60)): false, time.Unix(0, 0).UTC(): false,
	} {
		for name, v := range map[string]any{
			"a field": visit{at}, "a pointer": &at, "a key": map[time.Time]int{at: 1}, "a list": [][1]visit{{{at}}},
			"an any": map[string]any{"a": []any{at}},
		} {
			data, err := Encode(JSON, struct{ V any }{v})
			typed, err2 := Encode(JSON, v)
			if errors.As(err, new(*storage.InvalidError)) != refused || errors.As(err2, new(*storage.InvalidError)) != refused {
				t.Errorf("%s of %v: got %q, %v, and %q, %v; want an *InvalidError: %t", name, at, data, err, typed, err2, refused)
			}
			if data, err := Encode(MessagePack, v); err != nil {
				t.Errorf("%s of %v as MessagePack: got %q, %v; want nil", name, at, data, err)
			}
		}
	}
}

// folder holds a list of itself behind a pointer.
type folder struct {
	Name    string
	Folders *[]folder
}

func TestAFilledValueCanBeStored(t *testing.T) {
	for _, v := range []any{new(folder), new(struct{ P ***folder }), new(struct{ P *json.RawMessage }), new(struct{ P *net.IP })} {
		Fill(reflect.ValueOf(v).Elem(), math.MaxInt64)
		for _, encoding := range []string{MessagePack, JSON} {
			if data, err := Encode(encoding, v); err != nil {
				t.Errorf("%s of %T: got %q, %v; want nil", encoding, v, data, err)
			}
		}
	}
}

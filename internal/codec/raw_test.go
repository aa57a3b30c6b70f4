package codec

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/storage"
)

// Raw MessagePack is written as it is: bytes that are not one value would take or leave bytes of the next
// value.
func TestRawMessagePackIsOneValue(t *testing.T) {
	type job struct {
		V msgpack.RawMessage
		W string
	}
	for raw, refused := range map[string]bool{
		"": true, "\xc1": true, "\x01\x02": true, "\xa3a": true, "\x82\x01\x02": true, "\x01": false, "\x81\xa1a\x01": false,
	} {
		data, err := Encode(MessagePack, job{msgpack.RawMessage(raw), "w"})
		if errors.As(err, new(*storage.InvalidError)) != refused {
			t.Errorf("%q: got %q, %v; want an *InvalidError: %t", raw, data, err, refused)
		}
	}
}

// Interned texts are numbered in their order, in which the entries of a job with maps are not.
func TestInternedTextsAreRefusedBesideMaps(t *testing.T) {
	type texts struct {
		B, A string `msgpack:",intern"`
	}
	type inner struct{ L []texts }
	for v, refused := range map[any]bool{
		&texts{}: false, &inner{}: false, &struct {
			M map[string]int
			inner
		}{}: true, &struct{ M map[string]*texts }{}: true,
		&struct {
			V any `msgpack:",intern"`
		}{}: true, &struct{ M map[string]int }{}: false,
	} {
		p := ParametersOf(reflect.TypeOf(v).Elem())
		if err := p.Check(MessagePack); errors.As(err, new(*storage.InvalidError)) != refused {
			t.Errorf("%v: got %v, want an *InvalidError: %t", p.Type(), err, refused)
		}
		if err := p.Check(JSON); err != nil {
			t.Errorf("%v as JSON: got %v, want nil", p.Type(), err)
		}
	}
}

// The value in an any is read without its type, and so without the option.
func TestInternedTextsInAnAnyAreRefused(t *testing.T) {
	type texts struct {
		A string `msgpack:",intern"`
	}
	type inner struct{ L []texts }
	type job struct{ V any }
	for _, v := range []any{texts{"word"}, &texts{}, []texts{{"word"}, {"word"}}, map[string]any{"a": inner{}}, inner{}} {
		_, err := Encode(MessagePack, job{v})
		if invalid := new(storage.InvalidError); !errors.As(err, &invalid) || !strings.HasPrefix(invalid.What, "field V") {
			t.Errorf("%T: got %v, want an *InvalidError about the field", v, err)
		}
		_, err = Encode(JSON, job{v})
		wantPath(t, fmt.Sprintf("%T as JSON", v), err, "")
	}
}

// The name of a field may be that of an option.
func TestANameInATagIsNoOption(t *testing.T) {
	type job struct {
		M      map[string]int
		Intern string     `msgpack:"intern"`
		Addr   netip.Addr `msgpack:"omitempty"`
		Price  *price     `json:"omitzero"     msgpack:"omitzero"`
	}
	type array struct {
		_msgpack struct{} `msgpack:"as_array"`
		*Open
	}
	_ = array{}._msgpack
	v := job{Intern: "a", Price: new(price), Addr: netip.IPv6Loopback()}
	for _, encoding := range []string{MessagePack, JSON} {
		if err := ParametersOf(reflect.TypeFor[job]()).Check(encoding); err != nil {
			t.Errorf("%s: got %v, want nil", encoding, err)
		}
		comesBack(t, "names", encoding, v, false)
		comesBack(t, "no array", encoding, array{}, false)
	}
}

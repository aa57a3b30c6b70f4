package codec

import (
	"errors"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/midgehq/midge/storage"
)

// Raw MessagePack is written as it is: what is not one value would take or leave bytes of what follows.
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

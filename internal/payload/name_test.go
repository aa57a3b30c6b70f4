package payload_test

import (
	"errors"
	"testing"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// TestNoMemberIsRenamed encodes objects with names that begin with "$", in any place.
func TestNoMemberIsRenamed(t *testing.T) {
	for _, text := range []string{
		`{"$ref":2,"a":1}`, `{"a":1,"$ref":2}`, `{"ref":1,"$ref":2}`, `{"a":1,"$":2}`, `{"$":2}`, `[{"b":{"a":1,"$map":2}}]`,
		`{"$$a":1,"$bytes":"AA=="}`,
	} {
		var invalid *storage.InvalidError
		if got, err := payload.Encode("msgpack", []byte(text), nil); !errors.As(err, &invalid) {
			t.Errorf("%s: got %x, %v, want an InvalidError", text, got, err)
		}
		if got, err := payload.Encode("json", []byte(text), nil); err != nil || string(got) != text {
			t.Errorf("%s as JSON: got %s, %v", text, got, err)
		}
	}
	for _, text := range []string{`{"a":1,"$$ref":2}`, `{"$$ref":2,"$$$":1}`, `{"a":1,"$$":2}`} {
		data, err := payload.Encode("msgpack", []byte(text), nil)
		if got, jerr := (payload.Part{Encoding: "msgpack", Data: data}).JSON(); err != nil || jerr != nil || string(got) != text {
			t.Errorf("%s: got %s, %v, %v", text, got, err, jerr)
		}
	}
}

// TestTextIsUTF8 passes parameters in Latin-1, which JSON would decode as U+FFFD.
func TestTextIsUTF8(t *testing.T) {
	text := []byte("{\"name\":\"M\xfcller\"}")
	refused := map[string]error{"CheckJSON": payload.CheckJSON("@file", text)}
	for _, encoding := range []string{"json", "msgpack"} {
		_, refused["Encode "+encoding] = payload.Encode(encoding, text, nil)
		before, err := payload.Encode(encoding, []byte(`{"name":"x"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, refused["Edit "+encoding] = payload.Edit(&storage.Task{Encoding: encoding, Payload: before}, text)
	}
	_, refused["SettingOf"] = payload.SettingOf("name=M\xfcller")
	for name, err := range refused {
		if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an InvalidError", name, err)
		}
	}
	if err := payload.CheckJSON("@file", []byte(`{"name":"Müller"}`)); err != nil {
		t.Error(err)
	}
}

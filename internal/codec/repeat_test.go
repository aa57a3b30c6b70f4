package codec

import (
	"reflect"
	"testing"
)

// packed returns a MessagePack map of the texts in pairs, names and values, in this order and with repeated names.
func packed(pairs ...string) []byte {
	data := []byte{0x80 | byte(len(pairs)/2)}
	for _, text := range pairs {
		data = append(append(data, 0xa0|byte(len(text))), text...)
	}
	return data
}

// notation returns the same as JSON.
func notation(pairs ...string) []byte {
	text := ""
	for i := 0; i < len(pairs); i += 2 {
		text += `,"` + pairs[i] + `": "` + pairs[i+1] + `"`
	}
	return []byte("{" + text[1:] + "}")
}

// If a name is stored twice, the last value counts, as it does if no field was renamed. A newer name of a
// field precedes an older one, wherever it stands.
func TestOfARepeatedNameTheLastValueIsRead(t *testing.T) {
	type job struct {
		New   string `json:"new"   midge:"was=older,was=old" msgpack:"new"`
		Other string `json:"other" msgpack:"other"`
	}
	p := ParametersOf(reflect.TypeFor[job]())
	for _, c := range []struct {
		stored []string
		want   job
	}{
		{[]string{"old", "1", "old", "2"}, job{New: "2"}},
		{[]string{"old", "1", "other", "x", "old", "2"}, job{"2", "x"}},
		{[]string{"older", "1", "older", "2", "old", "3", "old", "4"}, job{New: "4"}},
		{[]string{"old", "3", "old", "4", "older", "1", "older", "2"}, job{New: "4"}},
		{[]string{"new", "1", "old", "2", "old", "3"}, job{New: "1"}},
		{[]string{"old", "2", "old", "3", "new", "1"}, job{New: "1"}},
		{[]string{"new", "1", "old", "2", "new", "3"}, job{New: "3"}},
		{[]string{"other", "1", "other", "2"}, job{Other: "2"}},
	} {
		for encoding, data := range map[string][]byte{
			MessagePack: packed(c.stored...), JSON: notation(c.stored...),
		} {
			var got job
			if err := p.DecodeStrict(encoding, data, &got); err != nil || got != c.want {
				t.Errorf("%s of %q: got %+v, %v; want %+v", encoding, c.stored, got, err, c.want)
			}
		}
	}
	for _, c := range []struct {
		stored []string
		want   job
	}{ // JSON knows a name in any letters
		{[]string{"old", "1", "OLD", "2"}, job{New: "2"}},
		{[]string{"OLD", "1", "old", "2"}, job{New: "2"}},
		{[]string{"other", "1", "OTHER", "2"}, job{Other: "2"}},
		{[]string{"OTHER", "1", "other", "2"}, job{Other: "2"}},
		{[]string{"old", "3", "new", "1", "NEW", "2"}, job{New: "2"}},
		{[]string{"NEW", "1", "new", "2", "old", "3"}, job{New: "2"}},
	} {
		var got job
		if err := p.Decode(JSON, notation(c.stored...), &got); err != nil || got != c.want {
			t.Errorf("json of %q: got %+v, %v; want %+v", c.stored, got, err, c.want)
		}
	}
}

// encoding/json takes some letters of other scripts for English letters: a long s and the sign of Kelvin.
func TestALetterIsTheOneThatJSONTakesItFor(t *testing.T) {
	type job struct {
		Mask string
		New  string `midge:"was=Task"`
	}
	var got job
	p := ParametersOf(reflect.TypeFor[job]())
	err := p.DecodeStrict(JSON, []byte("{\"ma\u017f\u212a\":\"a\",\"TA\u017fK\":\"b\"}"), &got)
	if want := (job{"a", "b"}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// The values of a repeated struct are read one into another, as they are if no field was renamed.
func TestARepeatedStructIsReadAsWithoutARenamedField(t *testing.T) {
	type plain struct{ V struct{ A, B string } }
	type renamed struct {
		V struct{ A, B string }
		W string `midge:"was=X"`
	}
	for encoding, data := range map[string][]byte{
		MessagePack: []byte("\x82\xa1V\x81\xa1A\xa1a\xa1V\x81\xa1B\xa1b"), JSON: []byte(`{"V":{"A":"a"},"V":{"B":"b"}}`),
	} {
		var want plain
		var got renamed
		err1, err2 := Decode(encoding, data, &want), ParametersOf(reflect.TypeOf(got)).Decode(encoding, data, &got)
		if err1 != nil || err2 != nil || got.V != want.V {
			t.Errorf("%s: got %+v, %v, %v; want %+v", encoding, got.V, err1, err2, want.V)
		}
	}
}

package payload

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

func TestASettingChangesOneField(t *testing.T) {
	const before = `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"01"}`
	for _, c := range []struct{ setting, want string }{
		{"to=bob", `{"to":"bob","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"01"}`},
		{"n=2", `{"to":"ann","n":2,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"01"}`},
		{"user.name=x=y", `{"to":"ann","n":1,"user":{"name":"x=y","tags":["a","b"]},"a.b":1,"zip":"01"}`},
		{"user.tags.1=c", `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","c"]},"a.b":1,"zip":"01"}`},
		{`user.tags=["x"]`, `{"to":"ann","n":1,"user":{"name":"bo","tags":["x"]},"a.b":1,"zip":"01"}`},
		{"a.b=3", `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":3,"zip":"01"}`},
		{"zip=22", `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"22"}`},
		{`zip="22"`, `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"22"}`},
		{"user.age=7", `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"],"age":7},"a.b":1,"zip":"01"}`},
		{"note=", `{"to":"ann","n":1,"user":{"name":"bo","tags":["a","b"]},"a.b":1,"zip":"01","note":""}`},
		{"n=many", ""},
		{"user.tags.2=c", ""},
		{"none.name=x", ""},
		{"to.name=x", ""},
		{"to", ""},
		{"=x", ""},
	} {
		for _, encoding := range []string{codec.JSON, codec.MessagePack} {
			encoded, err := Encode(encoding, []byte(before), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := SettingOf(c.setting)
			if err == nil {
				encoded, err = Set(&storage.Task{Encoding: encoding, Payload: encoded}, []Setting{s})
			}
			if c.want == "" {
				if _, ok := errors.AsType[*storage.InvalidError](err); !ok {
					t.Errorf("%s in %s: got %v, want an *InvalidError", c.setting, encoding, err)
				}
				continue
			}
			got, shown := JSON(encoding, encoded)
			if err != nil || shown != nil || string(got) != c.want {
				t.Errorf("%s in %s: got %s, %v, want %s", c.setting, encoding, got, err, c.want)
			}
		}
	}
}

func TestUnusualFieldsAreNamed(t *testing.T) {
	sample := func(text string) Part { return Part{Encoding: codec.JSON, Data: []byte(text)} }
	samples := []Part{sample(`{"to":"a","lines":[{"n":1},{"m":2}]}`), sample(`{"cc":null,"user":{"id":1}}`), sample(`{`)}
	for text, want := range map[string][]string{
		`{"to":"b","cc":1,"user":{"id":2},"lines":[{"n":3,"m":4}]}`: nil,
		`{"too":"b","user":{"name":1},"lines":[{"k":3}]}`:           {"lines.k", "too", "user.name"},
		`[]`: nil,
	} {
		if got := Unusual([]byte(text), samples...); !slices.Equal(got, want) {
			t.Errorf("the unusual fields of %s are %q, want %q", text, got, want)
		}
	}
	if got := Unusual([]byte(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`), sample(`{}`)); len(got) != mostUnusual {
		t.Errorf("six unusual fields: got %q, want the first %d", got, mostUnusual)
	}
	if got := Unusual([]byte(`{"to":1}`), sample(`{`)); got != nil {
		t.Errorf("without a sample %q are unusual, want none", got)
	}
}

// TestUnusualFieldsTakeLittleMemory compares parameters whose paths together are a thousand times as long as
// they are.
func TestUnusualFieldsTakeLittleMemory(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"` + strings.Repeat("x", 50_000) + `":{`)
	for i := range 10_000 {
		fmt.Fprintf(&text, `"%d":1,`, i)
	}
	text.WriteString(`"n":1}}`)
	params := []byte(text.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Unusual(params, Part{Encoding: codec.JSON, Data: params})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 100<<20 {
		t.Errorf("parameters of %d bytes took %d MB, want 100 at most", len(params), took>>20)
	}
}

func TestTheLastOfTwoEqualFieldsIsSet(t *testing.T) {
	task := &storage.Task{Encoding: codec.JSON, Payload: []byte(`{"n":1,"n":2}`)}
	if got, err := Set(task, []Setting{{"n", "3"}}); err != nil || string(got) != `{"n":1,"n":3}` {
		t.Errorf("got %s, %v, want the field set that decoders read", got, err)
	}
}

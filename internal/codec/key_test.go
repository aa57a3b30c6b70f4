package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// These are keys of maps: in JSON a text is written as it is, whatever methods it has, and read by its method.
type (
	quoted  string // reads no text that it writes itself
	lowered string // reads other letters
	checked string // reads the text itself
	marked  int    // is a text
	unread  int    // is a text that nothing reads
	hexed   uint8  // reads a text that it does not write
)

func (q quoted) MarshalText() ([]byte, error)  { return []byte("<" + string(q) + ">"), nil }
func (u marked) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "#%d", int(u)), nil }
func (u unread) MarshalText() ([]byte, error)  { return fmt.Appendf(nil, "#%d", int(u)), nil }
func (c checked) MarshalText() ([]byte, error) { return []byte(c), nil }
func (q *quoted) UnmarshalText(text []byte) error {
	inner, ok := strings.CutPrefix(string(text), "<")
	if *q = quoted(strings.TrimSuffix(inner, ">")); !ok {
		return errors.New("no quoted text")
	}
	return nil
}

func (l *lowered) UnmarshalText(text []byte) error {
	*l = lowered(strings.ToLower(string(text)))
	return nil
}

func (h *hexed) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 8)
	*h = hexed(n)
	return err
}
func (c *checked) UnmarshalText(text []byte) error { *c = checked(text); return nil }
func (u *marked) UnmarshalText(text []byte) error {
	_, err := fmt.Sscanf(string(text), "#%d", (*int)(u))
	return err
}

func TestAKeyOfJSONIsReadAsItWas(t *testing.T) {
	comesBack(t, "a text with quotes", JSON, map[quoted]int{"a": 1}, true)
	comesBack(t, "a text with quotes within", JSON, map[quoted]int{"<a>": 1}, true)
	comesBack(t, "a text in other letters", JSON, map[lowered]int{"A": 1}, true)
	comesBack(t, "in parts", JSON, []map[string]map[lowered]int{{"a": {"A": 1}}}, true)
	comesBack(t, "a text in its letters", JSON, map[lowered]int{"a": 1}, false)
	comesBack(t, "a text that is checked", JSON, map[checked]int{"A": 1, "B": 2}, false)
	comesBack(t, "a number as a text", JSON, map[marked]int{7: 1}, false)
	comesBack(t, "a number that is read as a text", JSON, map[hexed]int{16: 1}, true)
	comesBack(t, "a number that is read alike", JSON, map[hexed]int{7: 1, 8: 2}, false)
	comesBack(t, "a text with quotes", MessagePack, map[quoted]int{"a": 1}, false)
	if data, err := Encode(JSON, map[string]any{"a": map[lowered]int{"A": 1}}); err != nil { // it is read as a text
		t.Errorf("in an any: got %q, %v; want nil", data, err)
	}
}

func TestAKeyOfJSONThatNothingReadsIsRefusedEarly(t *testing.T) {
	for v, refused := range map[any]bool{
		&struct{ M map[*marked]int }{}: true, &struct{ M []map[string]map[*marked]int }{}: true, &struct{ M map[keyStruct]int }{}: true,
		&struct{ M map[marked]int }{}: false, &struct{ M map[unread]int }{}: true, &struct{ M map[string]int }{}: false,
	} {
		typ := reflect.TypeOf(v).Elem()
		err := ParametersOf(typ).Check(JSON)
		if errors.As(err, new(*storage.InvalidError)) != refused {
			t.Errorf("%v: got %v, want an *InvalidError: %t", typ, err, refused)
		}
		if data, err := Encode(JSON, &struct{ A any }{v}); err != nil {
			t.Errorf("%v in an any: got %q, %v; want nil", typ, data, err)
		}
	}
}

// keyStruct is a key that is written as a text, and cannot be read.
type keyStruct struct{ N int }

func (k keyStruct) MarshalText() ([]byte, error) { return fmt.Append(nil, k.N), nil }

// MessagePack reads a float32 of an any as a float64, and bytes and texts of their own as texts.
func TestKeysOfAnAnyThatAreReadAsOneAreRefused(t *testing.T) {
	for name, keys := range map[string][2]any{
		"floats": {float32(0.5), 0.5}, "bytes": {[1]byte{'a'}, "a"}, "a text of its own": {checked("a"), "a"},
		"numbers": {float32(0.1), 0.1}, "others": {1, 1.0}, "nil": {nil, "\xc0"},
	} {
		same := name == "floats" || name == "bytes" || strings.HasPrefix(name, "a text")
		for in, v := range map[string]any{
			"a map": map[any]int{keys[0]: 1, keys[1]: 2}, "an any": map[string]any{"a": map[any]any{keys[0]: 1, keys[1]: 2}},
		} {
			data, err := Encode(MessagePack, v)
			if errors.As(err, new(*storage.InvalidError)) != same {
				t.Errorf("%s in %s: got %q, %v; want an *InvalidError: %t", name, in, data, err, same)
			}
		}
	}
}

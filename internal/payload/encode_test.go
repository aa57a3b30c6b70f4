package payload

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/codec"
)

// FuzzJSONAlone compares how JSON becomes parameters with the findings of the reader of every value.
func FuzzJSONAlone(f *testing.F) {
	for _, text := range []string{
		`{"a": [1, "]}\"[{", {}], "b\\": null}`, ` 1e999 `, `"\ud800"`, `"`, `{"a" 1}`, `[1] 2`, `[1,]`, ``, "\xff", "\"\xff\"",
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		strings.Repeat("[", maxDepth-1) + `{"[[":"\\"}` + strings.Repeat("]", maxDepth-1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Encode(codec.JSON, text, nil)
		if !utf8.Valid(text) {
			if err == nil {
				t.Fatalf("%q: no error for text that is no UTF-8", text)
			}
			return
		}
		w := newWriter(text)
		want := w.document(likeOf(nil))
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Fatalf("%q: got the error %v, want %v", text, err, want)
		}
		if plain, _ := compacted(text); err == nil && !bytes.Equal(got, plain) {
			t.Errorf("%q: got %q, want %q", text, got, plain)
		}
	})
}

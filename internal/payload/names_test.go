package payload_test

import (
	"slices"
	"testing"

	"github.com/midgehq/midge/internal/payload"
)

func TestNamesThatStandTwiceAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		names []string
		twice string
	}{
		`{}`:                            {nil, ""},
		`7`:                             {nil, ""},
		`{"a":1,"b":[1,"a",{"c":"a"}]}`: {[]string{"a", "b"}, ""},
		`{"a":1,"b":2,"a":3}`:           {[]string{"a", "b", "a"}, "a"},
		`{"a":1,"A":2}`:                 {[]string{"a", "A"}, "A"},
		`{"kinds":{"a":1,"A":2}}`:       {[]string{"kinds"}, ""},
		`{"kinds":{"a":1,"a":2}}`:       {[]string{"kinds"}, "a"},
		`{"kinds":{"a":{"u":1,"U":2}}}`: {[]string{"kinds"}, "U"},
		`{"l":[{"a":1},{"a":2}]}`:       {[]string{"l"}, ""},
		`{"l":[[{"a":1,"a":{}}]]}`:      {[]string{"l"}, "a"},
		`{"a":{"x":"a","a":1},"b":"a"}`: {[]string{"a", "b"}, ""},
	} {
		names, twice := payload.NamesOf([]byte(text))
		if !slices.Equal(names, want.names) || twice != want.twice {
			t.Errorf("%s: got %q and %q, want %q and %q", text, names, twice, want.names, want.twice)
		}
	}
}

package shell

import (
	"strings"
	"testing"
)

func TestEachWordStaysOneWord(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"midge", "task", "ls"}, "midge task ls"},
		{[]string{"midge", "state:dead kind:a*", ""}, "midge 'state:dead kind:a*' ''"},
		{[]string{"it's", "=cmd", "a=b"}, `'it'\''s' '=cmd' a=b`},
		{[]string{"a\x00b"}, ""},
		{[]string{"midge", "x\x15rm -rf .\r"}, ""},
		{[]string{"midge", "a\tb"}, "midge 'a\tb'"},
	} {
		if got := Line(c.words...); got != c.want {
			t.Errorf("the line of %q is %s, want %s", c.words, got, c.want)
		}
	}
}

func TestAFlagIsReplaced(t *testing.T) {
	for words, want := range map[string]string{
		"audit":                                  "audit --after x",
		"audit --after old --limit 5":            "audit --limit 5 --after x",
		"audit --after=old -o jsonl":             "audit -o jsonl --after x",
		"task ls --limit 2 -- -kind:a --after b": "task ls --limit 2 --after x -- -kind:a --after b",
	} {
		if got := strings.Join(With(strings.Fields(words), "--after", "x"), " "); got != want {
			t.Errorf("%s with --after x: %s, want %s", words, got, want)
		}
	}
}

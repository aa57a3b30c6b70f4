package midge_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A program in a docs page, marked by a comment with the name of a Go file, consists of lines of
// that file, in the same order. So it is compiled and tested there.
func TestDocsProgramsAreExamples(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- ([a-z_/]+\\.go) -->\n```go\n(.*?)```")
	programs := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shown.FindAllSubmatch(text, -1) {
			programs++
			checkShown(t, page, string(block[1]), string(block[2]))
		}
	}
	if programs == 0 {
		t.Error("no page of docs shows a program of a Go file")
	}
}

// checkShown searches for each line of a program in a file, ignoring indentation.
func checkShown(t *testing.T, page, file, program string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("%s shows a program of %s: %v", page, file, err)
		return
	}
	lines := strings.Split(string(source), "\n")
	at := 0
	for line := range strings.Lines(program) {
		want := strings.TrimSpace(line)
		if want == "" {
			continue
		}
		for at < len(lines) && strings.TrimSpace(lines[at]) != want {
			at++
		}
		if at == len(lines) {
			t.Errorf("%s shows %q, which %s has not, or not in its place", page, want, file)
			return
		}
	}
}

package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestLinesOfPagesAreShort bounds the lines of the dashboard's pages, styles and
// scripts, which no formatter breaks.
func TestLinesOfPagesAreShort(t *testing.T) {
	const most = 140
	for _, pattern := range []string{"pages/*.html", "assets/*.css", "assets/*.mjs"} {
		files, err := filepath.Glob(filepath.Join(root(t), "dashboard", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("dashboard/%s names no file: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root(t), file)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for line := range strings.Lines(string(text)) {
				n++
				if got := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); got > most {
					t.Errorf("%s:%d: %d characters, want at most %d", filepath.ToSlash(name), n, got, most)
				}
			}
		}
	}
}

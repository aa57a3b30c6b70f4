package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// avoided matches words that a visible sentence avoids, because the field has clearer ones: an action or a
// check, a stalled queue, a backlog that clears, a matter that needs attention.
var avoided = regexp.MustCompile(`(?i)\b(acts?|looks?|looked|stands? still|gone in|needs? you|needs? somebody)\b`)

// TestVisibleSentencesHaveTheWordsOfTheField reads the sentences of the command, of the findings and verdicts
// that it shares with the dashboard, and of the audit.
func TestVisibleSentencesHaveTheWordsOfTheField(t *testing.T) {
	sentences := 0
	for _, pattern := range []string{
		"*.go", "../top/*.go", "../show/*.go", "../audit/*.go", "../connect/*.go", "../imports/*.go", "../webhook/*.go",
		"../../../../internal/survey/*.go", "../../../../internal/bulk/*.go", "../../../../internal/scan/*.go",
		"../../../../internal/filter/*.go", "../../../../internal/ledger/*.go", "../../../../storage/why.go",
		"../../../../storage/forecast.go", "../../../../storage/errors.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			for at, text := range sentencesOf(t, name) {
				if sentences++; avoided.MatchString(text) {
					t.Errorf("%s: %q", at, text)
				}
			}
		}
	}
	if sentences < 500 {
		t.Errorf("%d sentences were read, want all of the command", sentences)
	}
}

// sentencesOf returns the texts of a file with more than one word, each by its place; none of a test.
func sentencesOf(t *testing.T, name string) map[string]string {
	t.Helper()
	set, found := token.NewFileSet(), make(map[string]string)
	if strings.HasSuffix(name, "_test.go") {
		return found
	}
	file, err := parser.ParseFile(set, name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(text, " ") {
				found[set.Position(literal.Pos()).String()] = text
			}
		}
		return true
	})
	return found
}

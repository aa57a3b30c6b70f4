package wildcard_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/wildcard"
)

// TestPatternsMatchAsRegularExpressionsDo compares Match with package regexp on random short patterns and
// names, which share so few letters that many match.
func TestPatternsMatchAsRegularExpressionsDo(t *testing.T) {
	const seed = 17
	random := rand.New(rand.NewPCG(seed, 0))
	text := func(letters string, most int) string {
		b := make([]byte, random.IntN(most+1))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		return string(b)
	}
	matched := 0
	for range 20_000 {
		parts, name := strings.Split(text("ab*", 6), "*"), text("ab", 8)
		var quoted []string
		for _, part := range parts {
			quoted = append(quoted, regexp.QuoteMeta(part))
		}
		want := regexp.MustCompile("^" + strings.Join(quoted, ".*") + "$").MatchString(name)
		if got := wildcard.Match(parts, name); got != want {
			t.Fatalf("the parts %q and the name %q: got %v, want %v", parts, name, got, want)
		}
		if want {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("%d names matched: too few to compare", matched)
	}
}

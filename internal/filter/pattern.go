package filter

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/midgehq/midge/internal/wildcard"
)

// pattern is one value of a word: the texts before, between and behind its "*".
type pattern struct{ parts []string }

// exact returns the only text that matches, and reports whether there is only one.
func (p pattern) exact() (string, bool) { return p.parts[0], len(p.parts) == 1 }

// match reports whether a whole text matches.
func (p pattern) match(text string) bool { return wildcard.Match(p.parts, text) }

// none reports whether only the empty text matches.
func (p pattern) none() bool {
	text, exact := p.exact()
	return exact && text == ""
}

// within returns a pattern in lower case that matches each text of which p matches a part. If p matches only
// the empty text, which is a part of every text, so does the result.
func (p pattern) within() pattern {
	if p.none() {
		return p
	}
	parts := make([]string, 0, len(p.parts)+2)
	parts = append(parts, "")
	for _, part := range p.parts {
		parts = append(parts, strings.ToLower(part))
	}
	return pattern{append(parts, "")}
}

// text writes the pattern with the quotes that it needs. A word without a field (alone) needs more of them.
func (p pattern) text(alone bool) string {
	quoted := make([]string, len(p.parts))
	for i, part := range p.parts {
		if part != "" || len(p.parts) == 1 {
			quoted[i] = quote(part, alone)
		}
	}
	return strings.Join(quoted, "*")
}

// Quote writes a text as one word of a filter that matches exactly this text.
func Quote(text string) string { return quote(text, true) }

// quote puts a text into quotes if it would be read differently without them. name means that the text may
// stand where a field is expected.
func quote(text string, name bool) string {
	special := func(r rune) bool {
		return strings.ContainsRune(`*,"\`, r) || name && strings.ContainsRune(":<>=", r) || unicode.IsSpace(r) || !strconv.IsPrint(r)
	}
	if text != "" && !strings.ContainsFunc(text, special) && (!name || text[0] != '-' && !slices.Contains(joiners, text)) {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

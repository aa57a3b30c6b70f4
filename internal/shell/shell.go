// Package shell writes command lines that a person can paste into a shell.
package shell

import (
	"slices"
	"strings"
	"unicode"
)

// Line joins words to a command line. It returns "" if a word contains a control character other than a tab
// or a line feed, which stand in quotes. No shell passes a NUL to a command, and a terminal may obey others
// as the line is pasted, such as ^U, which removes the quote.
func Line(words ...string) string {
	quotes := make([]string, len(words))
	for i, w := range words {
		if strings.ContainsFunc(w, func(c rune) bool { return unicode.IsControl(c) && c != '\t' && c != '\n' }) {
			return ""
		}
		quotes[i] = quoted(w)
	}
	return strings.Join(quotes, " ")
}

// quoted quotes a text as one word.
func quoted(text string) string {
	unsafe := func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		return !letter && (c < '0' || c > '9') && !strings.ContainsRune("_-.:/,+@%=", c)
	}
	// Some shells read a word that begins with = as the path of a command.
	if text != "" && text[0] != '=' && !slices.ContainsFunc([]rune(text), unsafe) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// With returns the words of a command line with a flag, given as --name. It replaces the flag if the words
// have it already.
func With(words []string, name, value string) []string {
	flags, behind := words, []string(nil)
	if i := slices.Index(words, "--"); i >= 0 {
		flags, behind = words[:i], words[i:]
	}
	var kept []string
	for i := 0; i < len(flags); i++ {
		switch {
		case flags[i] == name:
			i++ // its value
		case !strings.HasPrefix(flags[i], name+"="):
			kept = append(kept, flags[i])
		}
	}
	return slices.Concat(kept, []string{name, value}, behind)
}

// Package fingerprint tells which tasks failed of one cause: their errors say the same but for what varies
// from task to task, such as numbers, ids, addresses, moments and quoted values.
package fingerprint

import (
	"cmp"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// maxText bounds a fingerprint, in bytes, and maxRead what is read of an error: a line may be long.
const (
	maxText = 200
	maxRead = 1 << 10
)

// varying is what differs between two errors of one cause, the longest kinds first.
var varying = regexp.MustCompile(strings.Join([]string{
	`"(?:[^"\\]|\\.)*"`, "`[^`]*`", `\B'[^']*'\B`, // quoted
	`\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?`,    // a moment
	`(?i:\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)`,           // a UUID
	`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`,                                                    // an address of mail
	`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?`, `\d+(?:\.\d+){3}(?::\d+)?`, // of a host
	`(?i:\b0x[0-9a-f]+\b)`, // an address in memory
	`(?i:\b[0-9a-z]*\d[0-9a-z]*[a-z][0-9a-z]*\d[0-9a-z]*\b)`,           // an id: letters between digits
	`(?i:\b[0-9a-f]*(?:\d[0-9a-f]*[a-f]|[a-f][0-9a-f]*\d)[0-9a-f]*\b)`, // hexadecimal
	`[+-]?\d+(?:[.,]\d+)*`,
}, "|"))

// Print is what the tasks of one cause share.
type Print struct {
	// ID names the cause, as in the filter "cause:ID".
	ID string
	// Text is the first line of the error with a '#' in the place of each part that varies, and "…" in that
	// of what was quoted.
	Text string
}

// Of returns the fingerprint of the error of a task. It is zero where the task has no error.
func Of(t storage.Task) Print { return OfText(Error(t)) }

// Error returns the last error of a task, or its reason where no attempt left an error.
func Error(t storage.Task) string { return cmp.Or(t.LastError(), t.Reason) }

// OfText returns the fingerprint of an error.
func OfText(text string) Print {
	text = Text(text)
	if text == "" {
		return Print{}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return Print{ID: strconv.FormatUint(h.Sum64(), 36), Text: text}
}

// Text is the first line of an error without what varies, of at most 200 bytes.
func Text(text string) string {
	text = strings.TrimSpace(cut(text, maxRead))
	text, _, _ = strings.Cut(text, "\n")
	text = varying.ReplaceAllStringFunc(text, func(part string) string {
		if strings.ContainsAny(part[:1], "\"'`") {
			return part[:1] + "…" + part[:1]
		}
		return "#"
	})
	return cut(strings.Join(strings.Fields(text), " "), maxText)
}

// cut shortens a text to whole characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

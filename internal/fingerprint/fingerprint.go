// Package fingerprint finds the tasks that failed for the same cause. Their errors differ only in parts that
// vary from task to task, such as numbers, ids, addresses, moments and quoted values.
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

// maxText bounds the text of a fingerprint, and maxRead the part of an error that is read, because a line may
// be long. Both are in bytes.
const (
	maxText = 200
	maxRead = 1 << 10
)

// status matches a status, such as "exit status 137", "HTTP 503", "status code: 402" or, where a message
// begins, "550 no such mailbox". A status separates causes: a task that failed with 503 may succeed later,
// and a task that failed with 402 does not. The word behind the number distinguishes "550 no such mailbox"
// from an amount such as "512 kB".
const status = `(?i:\bexit (?:status|code) \d{1,3}\b)|` +
	`(?i:\b(?:status(?: code)?|code|http(?:/\d(?:\.\d)?)?)[ :=]{1,2}[1-5]\d\d\b)|` +
	`(?i:(?:^|: )[45]\d\d[ -](?:[45](?:\.\d{1,3}){2} )?(?:no|[a-z]{3,})\b)`

var wholeStatus = regexp.MustCompile(`^(?:` + status + `)$`)

// varying matches the parts in which two errors of one cause may differ, and a status. Longer kinds come
// first.
var varying = regexp.MustCompile(strings.Join([]string{
	`"(?:[^"\\]|\\.)*"`, "`[^`]*`", `\B'[^']*'\B`, // quoted
	status,
	`\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?`,    // a moment
	`(?i:\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)`,           // a UUID
	`[\w.+-]+@[\w-]+(?:\.[\w-]+)+`,                                                    // a mail address
	`\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?`, `\d+(?:\.\d+){3}(?::\d+)?`, // the address of a host
	`(?i:\b0x[0-9a-f]+\b)`, // an address in memory
	`(?i:\b[0-9a-z]*\d[0-9a-z]*[a-z][0-9a-z]*\d[0-9a-z]*\b)`,           // an id: letters between digits
	`(?i:\b[0-9a-f]*(?:\d[0-9a-f]*[a-f]|[a-f][0-9a-f]*\d)[0-9a-f]*\b)`, // hexadecimal
	`[+-]?\d+(?:[.,]\d+)*`,
}, "|"))

// Print identifies a cause.
type Print struct {
	// ID names the cause, as in the filter "cause:ID".
	ID string
	// Text is the first line of the error. A '#' replaces each part that varies, and "…" a quoted value;
	// a status such as "HTTP 503" stays.
	Text string
}

// Of returns the fingerprint of the error of a task, or the zero Print if the task has no error.
func Of(t storage.Task) Print { return OfText(Error(t)) }

// Error returns the last error of a task, or its reason if no attempt left an error.
func Error(t storage.Task) string { return cmp.Or(t.LastError(), t.CurrentReason()) }

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

// Text returns the first line of an error with the varying parts replaced, in at most 200 bytes.
func Text(text string) string {
	return replaced(text, "…", func(string) string { return "#" })
}

// Title returns the first line of an error for people: it has "{n}" for each number that varies, and "{…}" for
// each other part.
func Title(text string) string {
	return replaced(text, "{…}", func(part string) string {
		if number.MatchString(part) {
			return "{n}"
		}
		return "{…}"
	})
}

var number = regexp.MustCompile(`^[+-]?\d+(?:[.,]\d+)?$`)

// replaced returns the first line of an error, in at most 200 bytes. It has quoted within quotes, and the result
// of other for each other part that varies.
func replaced(text, quoted string, other func(part string) string) string {
	text = strings.TrimSpace(cut(text, maxRead))
	text, _, _ = strings.Cut(text, "\n")
	text = varying.ReplaceAllStringFunc(text, func(part string) string {
		if strings.ContainsAny(part[:1], "\"'`") {
			return part[:1] + quoted + part[:1]
		}
		if wholeStatus.MatchString(part) {
			return part
		}
		return other(part)
	})
	return cut(strings.Join(strings.Fields(text), " "), maxText)
}

// cut shortens a text to at most so many bytes, without cutting a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/storage"
)

// The parts of a task that rules of a [Redaction] begin with.
const (
	PartParams     = "params"
	PartResult     = "result"
	PartProgress   = "progress"
	PartCheckpoint = "checkpoint"
	PartHeader     = "header"
)

// Hidden is the text that stands in the place of what a [Redaction] hides.
const Hidden = "***"

// Redaction hides fields of parameters, results, progress, checkpoints and headers from people. A
// nil one hides nothing. It is safe for concurrent use.
type Redaction struct {
	rules [][]string // in small letters, split at the dots
}

// Redact makes a redaction of patterns, such as "params.card.*", "header.authorization" or
// "params.**.password". A pattern begins with the part of the task: params, result, progress,
// checkpoint or header. Its further words, split by dots, name fields, each within the one before:
// '*' stands for any text within a word, and "**" for any number of words. A field that a pattern names
// is hidden with all that it holds. Elements of a list count as if they stood in its place. A map whose
// keys are of several types, shown as {"$map":[[key,value]]}, is hidden whole where a pattern may name
// something in it. Small and capital letters are the same. A pattern that begins with "**" behind its
// part may name something in any field, so that [Redaction.Hides] is true for every field of the part,
// and no filter may look at any. Bad patterns give an *[storage.InvalidError].
func Redact(patterns ...string) (*Redaction, error) {
	parts := []string{PartParams, PartResult, PartProgress, PartCheckpoint, PartHeader}
	r := new(Redaction)
	for _, pattern := range patterns {
		words := strings.Split(strings.ToLower(pattern), ".")
		ok := slices.Contains(parts, words[0]) && len(words) > 1
		for _, word := range words {
			_, err := path.Match(word, "")
			ok = ok && word != "" && err == nil && !strings.ContainsAny(word, `[\?/`)
		}
		if !ok {
			return nil, storage.Invalid("redaction", pattern,
				`a part of a task (%s) and fields of it, such as "params.card.*"`, strings.Join(parts, ", "))
		}
		r.rules = append(r.rules, words)
	}
	return r, nil
}

// Hides reports whether a field is hidden, or one of the fields that it lies in, or one that lies in
// it: whether a filter by that field would tell what is hidden. The first word is the part of the
// task.
func (r *Redaction) Hides(field ...string) bool {
	if r == nil {
		return false
	}
	field = small(field)
	forms := [][]string{field}
	if len(field) > 1 && field[0] == PartHeader { // the name of a header may have dots of its own
		name := strings.Join(field[1:], ".")
		forms = [][]string{{PartHeader, name}, append([]string{PartHeader}, strings.Split(name, ".")...)}
	}
	return slices.ContainsFunc(r.rules, func(rule []string) bool {
		return slices.ContainsFunc(forms, func(form []string) bool { return tells(rule, form) })
	})
}

// JSON gives the JSON of a part of a task with what is to be hidden replaced by "***". All else
// stays as it is, byte for byte. Where the part has rules and is not JSON, or nests deeper than a
// hundred levels, all of it is hidden. The text given is not changed.
func (r *Redaction) JSON(part string, text []byte) []byte {
	if r == nil || !slices.ContainsFunc(r.rules, func(rule []string) bool { return rule[0] == part }) {
		return text
	}
	h := hider{r: r, text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	h.dec.UseNumber()
	err := h.value([]string{part}, false)
	if _, more := h.dec.Token(); err != nil || !errors.Is(more, io.EOF) {
		return []byte(`"` + Hidden + `"`)
	}
	return append(h.out, text[h.copied:]...)
}

// Headers gives headers with the values replaced by "***" that are to be hidden. The headers given
// are not changed.
func (r *Redaction) Headers(headers map[string]string) map[string]string {
	if r == nil || len(r.rules) == 0 {
		return headers
	}
	shown := make(map[string]string, len(headers))
	for name, value := range headers {
		// The name of a header may have dots of its own.
		if r.names(PartHeader, name) || r.names(append([]string{PartHeader}, strings.Split(name, ".")...)...) {
			value = Hidden
		}
		shown[name] = value
	}
	return shown
}

// names reports whether a rule names the field, or one that it lies in.
func (r *Redaction) names(field ...string) bool {
	field = small(field)
	return slices.ContainsFunc(r.rules, func(rule []string) bool { return names(rule, field) })
}

// reaches reports whether a rule may name something that lies in the field.
func (r *Redaction) reaches(field []string) bool {
	field = small(field)
	return slices.ContainsFunc(r.rules, func(rule []string) bool { return reaches(rule, field) })
}

func small(field []string) []string {
	words := make([]string, len(field))
	for i, word := range field {
		words[i] = strings.ToLower(word)
	}
	return words
}

// names reports whether the rule names the field, or one that it lies in.
func names(rule, field []string) bool {
	switch {
	case len(rule) == 0:
		return true
	case rule[0] == "**":
		for i := range len(field) + 1 {
			if len(field[i:]) > 0 && names(rule[1:], field[i:]) {
				return true
			}
		}
		return false
	case len(field) == 0:
		return false
	}
	return matchShown(rule[0], field[0]) && names(rule[1:], field[1:])
}

// tells reports whether a filter by the field tells what the rule names: the field itself, one that it
// lies in, or one that lies in it. A number in a field may be that of an element of a list, which no rule
// names.
func tells(rule, field []string) bool {
	at := make([]bool, len(rule)+1) // how much of the rule the words so far may stand for
	reach := func(at []bool) {
		for i, word := range rule {
			at[i+1] = at[i+1] || at[i] && word == "**"
		}
	}
	at[0] = true
	for _, word := range field {
		if reach(at); at[len(rule)] {
			return true
		}
		next := make([]bool, len(at))
		_, err := strconv.Atoi(word)
		for i, part := range rule {
			if !at[i] {
				continue
			}
			next[i] = next[i] || part == "**" || err == nil && field[0] != PartHeader
			next[i+1] = next[i+1] || part != "**" && match(part, word)
		}
		at = next
	}
	return slices.Contains(at, true)
}

// reaches reports whether the rule may name something that lies in the field.
func reaches(rule, field []string) bool {
	switch {
	case len(field) == 0:
		return true
	case len(rule) == 0:
		return false
	case rule[0] == "**":
		return true
	}
	return matchShown(rule[0], field[0]) && reaches(rule[1:], field[1:])
}

// matchShown reports whether a word of a rule stands for a word as JSON shows it: with one "$" more before
// one that begins with it.
func matchShown(rule, word string) bool {
	return match(rule, word) || strings.HasPrefix(word, "$$") && match(rule, word[1:])
}

// match reports whether a word of a rule stands for a word of a field, which may have any characters.
func match(rule, word string) bool {
	before, after, star := strings.Cut(rule, "*")
	if !star {
		return rule == word
	}
	if !strings.HasPrefix(word, before) {
		return false
	}
	for i := len(before); i <= len(word); i++ {
		if match(after, word[i:]) {
			return true
		}
	}
	return false
}

// maxDepth is how deep JSON may nest.
const maxDepth = 100

var errDepth = errors.New("nests too deep")

// asMap names the member that shows a map as a list of its keys and values, as maps with keys of several
// types are shown.
const asMap = "$map"

// hider copies JSON and hides values on its way.
type hider struct {
	r      *Redaction
	text   []byte
	dec    *json.Decoder
	out    []byte
	copied int // of text
	depth  int
}

// value copies a value at a path, or hides it. element says that it stands in a list.
func (h *hider) value(at []string, element bool) error {
	if h.r.names(at...) || element && h.r.names(append(slices.Clone(at), "0")...) {
		return h.hide()
	}
	if h.depth++; h.depth > maxDepth {
		return errDepth
	}
	defer func() { h.depth-- }()
	token, err := h.dec.Token()
	delim, _ := token.(json.Delim)
	if err != nil || delim == 0 {
		return err
	}
	for h.dec.More() {
		next := at
		if delim == '{' {
			key, err := h.dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if name == asMap && h.r.reaches(at) {
				if err := h.hide(); err != nil {
					return err
				}
				continue
			}
			next = append(slices.Clone(at), name)
		}
		if err := h.value(next, delim == '['); err != nil {
			return err
		}
	}
	_, err = h.dec.Token()
	return err
}

// hide skips a value.
func (h *hider) hide() error {
	begin := int(h.dec.InputOffset())
	for begin < len(h.text) && strings.IndexByte(" \t\r\n:,", h.text[begin]) >= 0 {
		begin++
	}
	var skipped json.RawMessage
	if err := h.dec.Decode(&skipped); err != nil {
		return err
	}
	h.out = append(append(h.out, h.text[h.copied:begin]...), `"`+Hidden+`"`...)
	h.copied = int(h.dec.InputOffset())
	return nil
}

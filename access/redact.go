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

	"github.com/midgehq/midge/internal/wildcard"
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
	words []word // of all rules, with the end of each rule behind its last word
}

// word is a word of a rule: texts in small letters with any text between them.
type word struct {
	texts []string
	any   bool // it stands for any number of words
	end   bool // it is none, but the end of a rule
}

// Redact makes a redaction of patterns, such as "params.card.*", "header.authorization" or
// "params.**.password". A pattern begins with the part of the task: params, result, progress,
// checkpoint or header. Its further words, split by dots, name fields, each within the one before:
// '*' stands for any text within a word, and "**" for any number of words. A field that a pattern names
// is hidden with all that it holds. Elements of a list count as if they stood in its place. A map whose
// keys are of several types, shown as {"$map":[[key,value]]}, is hidden whole where a pattern may name
// something in it. A field whose own name has dots is hidden by a pattern of the whole name as well, so that
// "params.card.number" hides "number" in "card", and a field "card.number". Small and capital letters are the
// same. A pattern that begins with "**" behind its
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
		for i, text := range words {
			// The last word stands for one field, because a field is hidden with all that lies in it.
			many := text == "**" && i < len(words)-1
			r.words = append(r.words, word{texts: strings.Split(text, "*"), any: many})
		}
		r.words = append(r.words, word{end: true})
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
	header := len(field) > 0 && field[0] == PartHeader
	if header && len(field) > 1 { // the name of a header may have dots of its own
		field = []string{PartHeader, strings.Join(field[1:], ".")}
	}
	at := r.begin()
	for _, name := range field {
		next := r.next(at, name)
		if _, err := strconv.Atoi(name); err == nil && !header { // perhaps of an element, which no rule names
			next.join(at)
		}
		at = next
	}
	return at.open()
}

// JSON gives the JSON of a part of a task with what is to be hidden replaced by "***". All else
// stays as it is, byte for byte. Where the part has rules and is not JSON, or nests deeper than a
// hundred levels, all of it is hidden. The text given is not changed.
func (r *Redaction) JSON(part string, text []byte) []byte {
	if r == nil {
		return text
	}
	at := r.next(r.begin(), part)
	if !at.open() {
		return text
	}
	h := hider{r: r, text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	h.dec.UseNumber()
	err := h.value(at, false)
	if _, more := h.dec.Token(); err != nil || !errors.Is(more, io.EOF) {
		return []byte(`"` + Hidden + `"`)
	}
	return append(h.out, text[h.copied:]...)
}

// Headers gives headers with the values replaced by "***" that are to be hidden. The headers given
// are not changed.
func (r *Redaction) Headers(headers map[string]string) map[string]string {
	if r == nil || len(r.words) == 0 {
		return headers
	}
	at, shown := r.next(r.begin(), PartHeader), make(map[string]string, len(headers))
	for name, value := range headers {
		if r.names(r.next(at, name)) {
			value = Hidden
		}
		shown[name] = value
	}
	return shown
}

// state says of each word of the rules whether the words of the rule before it stand for a path. A path that
// a rule names stays named, whatever follows.
type state []bool

// open reports whether a rule names the path, or may name something that lies in it.
func (at state) open() bool { return slices.Contains(at, true) }

// join adds another state.
func (at state) join(other state) {
	for i, is := range other {
		at[i] = at[i] || is
	}
}

// begin gives the state before the first word of a path.
func (r *Redaction) begin() state {
	at := make(state, len(r.words))
	for i := range at {
		at[i] = i == 0 || r.words[i-1].end
	}
	return at
}

// next gives the state behind a name, which may have dots of its own.
func (r *Redaction) next(at state, name string) state {
	name = strings.ToLower(name)
	next := r.step(at, name)
	if !strings.Contains(name, ".") {
		return next
	}
	for part := range strings.SplitSeq(name, ".") {
		at = r.step(at, part)
	}
	next.join(at)
	return next
}

// step gives the state behind a word in small letters.
func (r *Redaction) step(at state, name string) state {
	next := make(state, len(at))
	for i := range r.words {
		w := &r.words[i]
		switch {
		case !at[i]:
		case w.end || w.any:
			next[i] = true
		case w.matchShown(name):
			next[i+1] = true
		}
		// "**" may stand for no word at all.
		if next[i] && w.any {
			next[i+1] = true
		}
	}
	return next
}

// names reports whether a rule names the path, or a field that it lies in.
func (r *Redaction) names(at state) bool {
	for i, is := range at {
		if is && r.words[i].end {
			return true
		}
	}
	return false
}

// matchShown reports whether a word of a rule stands for a word as JSON shows it: with one "$" more before
// one that begins with it.
func (w *word) matchShown(name string) bool {
	return w.match(name) || strings.HasPrefix(name, "$$") && w.match(name[1:])
}

// match reports whether a word of a rule stands for a word of a field, which may have any characters.
func (w *word) match(name string) bool { return wildcard.Match(w.texts, name) }

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

// value copies a value at a path, or hides it.
func (h *hider) value(at state, hidden bool) error {
	if hidden {
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
	hidden = delim == '[' && h.r.names(h.r.step(at, "0")) // where a rule names the elements
	for h.dec.More() {
		next := at
		if delim == '{' {
			key, err := h.dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if name == asMap && at.open() {
				if err := h.hide(); err != nil {
					return err
				}
				continue
			}
			next = h.r.next(at, name)
			hidden = h.r.names(next)
		}
		if err := h.value(next, hidden); err != nil {
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

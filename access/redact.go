package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/internal/wildcard"
	"github.com/midgehq/midge/storage"
)

// The parts of a task. Each rule of a [Redaction] begins with one of them.
const (
	PartParams     = "params"
	PartResult     = "result"
	PartProgress   = "progress"
	PartCheckpoint = "checkpoint"
	PartStep       = "step"
	PartHeader     = "header"
)

// Hidden is the text that replaces each value that a [Redaction] hides.
const Hidden = "***"

// Redaction hides fields of parameters, results, progress, checkpoints, steps and headers from people. A nil
// Redaction hides nothing. It is safe for concurrent use.
type Redaction struct {
	words []word // the words of all rules; an end follows the last word of each rule
}

// word is a word of a rule, in small letters.
type word struct {
	texts []string // the texts before, between and behind its "*"
	any   bool     // it stands for any number of words
	end   bool     // it marks the end of a rule and is no word
}

// Redact makes a Redaction from patterns such as "params.card.*", "header.authorization" or
// "params.**.password". A pattern begins with a part of the task: params, result, progress, checkpoint, step
// or header. The words behind it, with dots between them, name fields, each within the field before. Behind
// "step" comes the name of a step, and then fields of its result: "step.charge.card", "step.*.email". In a
// word, '*' stands for any text. The word "**" stands for any number of words. Case does not matter.
//
// A field that a pattern names is hidden with everything in it. The elements of a list have the name of the
// list. A map whose keys are of several types, which is shown as {"$map":[[key,value]]}, is hidden as a whole
// if a pattern may name something in it. A name that has dots itself matches a pattern in both ways:
// "params.card.number" hides the field "number" in "card", and a field "card.number".
//
// A pattern with "**" behind its part may name something in every field. [Redaction.Hides] is then true for
// every field of that part, and no filter may use any of them. For a bad pattern Redact returns an
// *[storage.InvalidError], and without patterns the nil Redaction.
func Redact(patterns ...string) (*Redaction, error) {
	if len(patterns) == 0 {
		return nil, nil //nolint:nilnil // the nil Redaction works
	}
	parts := []string{PartParams, PartResult, PartProgress, PartCheckpoint, PartStep, PartHeader}
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

// Hides reports whether a filter by a field would reveal something hidden: whether the field is hidden, or a
// field around it, or a field in it. The first word of field is the part of the task.
func (r *Redaction) Hides(field ...string) bool {
	if r == nil {
		return false
	}
	header := len(field) > 0 && field[0] == PartHeader
	if header && len(field) > 1 { // the name of a header may have dots
		field = []string{PartHeader, strings.Join(field[1:], ".")}
	}
	at := r.begin()
	for _, name := range field {
		next := r.next(at, name)
		if _, err := strconv.Atoi(name); err == nil && !header { // may number an element, which no rule names
			next.join(at)
		}
		at = next
	}
	return at.open()
}

// JSON returns the JSON of a part of a task, in which "***" replaces each hidden value. All other bytes stay
// as they are. If the part has rules and text is not JSON, or nests deeper than 100 levels, all of it is
// hidden. text is not changed.
func (r *Redaction) JSON(part string, text []byte) []byte {
	if r == nil {
		return text
	}
	shown, _ := r.hide(text, part)
	return shown
}

// StepJSON returns the JSON of the result of a step as JSON does for a part of a task.
func (r *Redaction) StepJSON(step string, text []byte) []byte {
	if r == nil {
		return text
	}
	shown, _ := r.hide(text, PartStep, step)
	return shown
}

// hide returns the JSON of the value at a path without its hidden values, and each of these.
func (r *Redaction) hide(text []byte, path ...string) (shown []byte, hidden []json.RawMessage) {
	at := r.begin()
	for _, name := range path {
		at = r.next(at, name)
	}
	if !at.open() {
		return text, nil
	}
	h := hider{r: r, text: text, dec: json.NewDecoder(bytes.NewReader(text))}
	h.dec.UseNumber()
	err := h.value(at, r.names(at))
	if _, more := h.dec.Token(); err != nil || !errors.Is(more, io.EOF) {
		return []byte(`"` + Hidden + `"`), []json.RawMessage{text}
	}
	return append(h.out, text[h.copied:]...), h.hidden
}

// leastConcealed is the length of the shortest value that Conceal replaces, in bytes. Shorter ones, such as 0
// and "no", stand in many texts by chance.
const leastConcealed = 3

// Conceal returns texts about a task, such as its errors, in which "***" replaces each value of 3 and more
// bytes that is hidden in the task's headers or other parts: jobs repeat values in their errors. parts has
// the JSON of each part by its name, and that of the result of the step charge as "step.charge". Values of
// parts that are not in it are not replaced. The names of fields in a hidden value are replaced as values
// are. A value is also found in the forms in which the packages fmt, strconv, encoding/json, net/url and time
// print it: an integer also as a float and as a duration, and a moment in each layout that has its date.
// "***" also replaces a part of a value beside a cut: at the end of a text that is as long as a storage keeps
// it, before "…", and behind the mark of a program's output that has lost its beginning. If a part has rules
// and its text is not JSON, the texts are hidden as a whole. The texts themselves are not changed.
func (r *Redaction) Conceal(parts map[string][]byte, headers map[string]string, texts ...string) []string {
	if r == nil || len(r.words) == 0 {
		return texts
	}
	var found forms
	for name, shown := range r.Headers(headers) {
		if shown != headers[name] {
			found.text(headers[name])
		}
	}
	unknown := false // a part is hidden and cannot be read
	for part, text := range parts {
		_, hidden := r.hide(text, strings.SplitN(part, ".", 2)...) // the name of a step may have dots
		for _, text := range hidden {
			unknown = unknown || !json.Valid(text)
			found.json(text)
		}
	}
	hidden := sortedValues(found)
	concealed := slices.Clone(texts)
	for i, text := range concealed {
		if concealed[i] = hidden.conceal(text); unknown && text != "" {
			concealed[i] = Hidden
		}
	}
	return concealed
}

// Headers returns a copy of headers in which "***" replaces each hidden value.
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

// state holds, for each word of the rules, whether the words before it in its rule match a path. If a rule
// names a path, it also names each longer path.
type state []bool

// open reports whether a rule names the path, or may name something in it.
func (at state) open() bool { return slices.Contains(at, true) }

// join adds the matches of another state.
func (at state) join(other state) {
	for i, is := range other {
		at[i] = at[i] || is
	}
}

// begin returns the state before the first word of a path.
func (r *Redaction) begin() state {
	at := make(state, len(r.words))
	for i := range at {
		at[i] = i == 0 || r.words[i-1].end
	}
	return at
}

// next returns the state behind a name. A name with dots is taken as one word and as several.
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

// step returns the state behind a word, which is in small letters.
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

// names reports whether a rule names the path, or a field around it.
func (r *Redaction) names(at state) bool {
	for i, is := range at {
		if is && r.words[i].end {
			return true
		}
	}
	return false
}

// matchShown reports whether a word of a rule matches a name as the JSON shows it: with one "$" more if the
// name begins with "$".
func (w *word) matchShown(name string) bool {
	return w.match(name) || strings.HasPrefix(name, "$$") && w.match(name[1:])
}

// match reports whether a word of a rule matches a name, which may have any characters.
func (w *word) match(name string) bool { return wildcard.Match(w.texts, name) }

// maxDepth is how deep JSON may nest.
const maxDepth = 100

var errDepth = errors.New("nests too deep")

// asMap is the name of the member that shows a map with keys of several types, as a list of keys and values.
const asMap = "$map"

// inBase64 are the names of the members that show bytes: see the package internal/payload.
var inBase64 = []string{"$bytes", "$text", "$extension"}

// hider copies JSON and hides values on its way.
type hider struct {
	r      *Redaction
	text   []byte
	dec    *json.Decoder
	out    []byte
	copied int // how many bytes of text are in out, or were replaced
	hidden []json.RawMessage
	depth  int
}

// value copies a value at a path, or hides it, with everything in it.
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
	hidden = delim == '[' && h.r.names(h.r.step(at, "0")) // a rule may name the elements
	for h.dec.More() {
		next, name := at, ""
		if delim == '{' {
			key, err := h.dec.Token()
			if err != nil {
				return err
			}
			name, _ = key.(string)
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
		if last := len(h.hidden) - 1; hidden && slices.Contains(inBase64, name) {
			h.hidden[last] = fmt.Appendf(nil, `{%q:%s}`, name, h.hidden[last])
		}
	}
	_, err = h.dec.Token()
	return err
}

// hide reads a value and writes Hidden in its place.
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
	h.copied, h.hidden = int(h.dec.InputOffset()), append(h.hidden, skipped)
	return nil
}

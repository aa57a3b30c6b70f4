package filter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// maxText and maxTerms bound a filter.
const (
	maxText   = 4 << 10
	maxTerms  = 100
	maxParams = 10 // words about parameters: each of them walks all parameters of a task
)

// Error names the word of a filter that cannot be read. It unwraps to a *[storage.InvalidError].
type Error struct {
	Word string // the word as it was given, shortened
	At   int    // the offset of its first byte in the text
	What string // the wrong part of the word, such as "the field"
	Want string // what may stand in its place
}

// Error names the word, its position counted from 1, and what may stand there.
func (e *Error) Error() string {
	return fmt.Sprintf("filter: %s in %s at character %d: want %s", e.What, strconv.Quote(e.Word), e.At+1, e.Want)
}

// Unwrap returns the error as a *[storage.InvalidError].
func (e *Error) Unwrap() error {
	return storage.Invalid("filter", e.Word, "%s", e.Want)
}

// Parse reads a filter. An error is an *[Error].
func Parse(text string) (Filter, error) {
	var f Filter
	if len(text) > maxText || !utf8.ValidString(text) {
		return f, &Error{Word: storage.PrintableText(text, 64), What: "the text", Want: fmt.Sprintf("valid UTF-8 of at most %d bytes", maxText)}
	}
	for at := 0; ; {
		for at < len(text) && isSpace(text[at:]) {
			_, size := utf8.DecodeRuneInString(text[at:])
			at += size
		}
		if at == len(text) {
			return f, nil
		}
		w := word{text: text, begin: at, at: at}
		t, err := w.read()
		if err != nil {
			return Filter{}, err
		}
		if f.terms = append(f.terms, t); len(f.terms) > maxTerms {
			return Filter{}, w.wrong("the word", "at most %d words", maxTerms)
		}
		if params := f.params(); params > maxParams {
			return Filter{}, w.wrong("the word", "at most %d words about parameters", maxParams)
		}
		at = w.at
	}
}

func isSpace(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.IsSpace(r)
}

// word reads one word of a text.
type word struct {
	text  string
	begin int // where the word begins in text
	at    int // the next byte to read
}

// more reports whether the word goes on.
func (w *word) more() bool { return w.at < len(w.text) && !isSpace(w.text[w.at:]) }

// wrong returns the error that a part of the word is wrong.
func (w *word) wrong(what, want string, args ...any) *Error {
	end := w.at
	for end < len(w.text) && !isSpace(w.text[end:]) {
		_, size := utf8.DecodeRuneInString(w.text[end:])
		end += size
	}
	return &Error{
		Word: storage.PrintableText(w.text[w.begin:end], 64), At: w.begin, What: what, Want: fmt.Sprintf(want, args...),
	}
}

// joiners join words in other languages. Here a task has to match all words, so that a joiner would be
// searched for, and the filter would choose other tasks than the user means.
var joiners = []string{"OR", "AND", "NOT", "||", "&&"}

// read reads the word and builds its test.
func (w *word) read() (term, error) {
	var t term
	if w.text[w.at] == '-' {
		t.not = true
		if w.at++; !w.more() {
			return t, w.wrong("the word", "a word behind the -")
		}
	}
	begin := w.at
	steps, err := w.name()
	if err != nil {
		return t, err
	}
	want := `a value, or "" for none`
	if t.op = w.operator(); t.op == "" {
		w.at, want = begin, "a text" // a word without a field
	} else if err := w.look(&t, steps); err != nil {
		return t, err
	}
	if t.value, err = w.values(want); err != nil {
		return t, err
	}
	if t.op == "" && slices.Contains(joiners, w.text[begin:w.at]) {
		return t, w.wrong("the word",
			"words that must all match, with a,b for either and -a for not; the text itself in quotes")
	}
	return t, w.build(&t)
}

// name reads up to the operator, and returns the names between the dots.
func (w *word) name() (steps []string, err error) {
	var b strings.Builder
	for w.more() {
		switch c := w.text[w.at]; c {
		case ':', '<', '>', '=':
			return append(steps, b.String()), nil
		case '"':
			text, err := w.quoted()
			if err != nil {
				return nil, err
			}
			b.WriteString(text)
			continue
		case '.':
			steps = append(steps, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
		w.at++
	}
	return append(steps, b.String()), nil
}

// operator reads an operator, and returns "" if none follows. "=" is the same as ":".
func (w *word) operator() string {
	for _, op := range []string{">=", "<=", ">", "<", ":", "="} {
		if w.more() && strings.HasPrefix(w.text[w.at:], op) {
			w.at += len(op)
			if op == "=" {
				op = ":"
			}
			return op
		}
	}
	return ""
}

// look finds the field that the word names, and checks its path and its operator.
func (w *word) look(t *term, steps []string) error {
	at := slices.IndexFunc(fields, func(f field) bool { return strings.TrimSuffix(f.name, ".") == steps[0] })
	if at < 0 {
		return w.wrong("the field", "%s", possible(steps[0]))
	}
	t.field = fields[at]
	dotted := strings.HasSuffix(t.field.name, ".")
	if t.path = steps[1:]; dotted != (len(t.path) > 0) || dotted && slices.Contains(t.path, "") {
		if dotted {
			return w.wrong("the field", "%sNAME", t.field.name)
		}
		return w.wrong("the field", "%s without a dot", t.field.name)
	}
	quoted := make([]string, len(t.path))
	for i, step := range t.path {
		if quoted[i] = quote(step, true); strings.Contains(step, ".") && quoted[i] == step {
			quoted[i] = `"` + step + `"`
		}
	}
	t.name = strings.Join(quoted, ".")
	if !slices.Contains(t.field.ops(), t.op) {
		return w.wrong("the operator "+t.op, "%s behind %s", strings.Join(t.field.ops(), " "), t.field.name)
	}
	return nil
}

// possible lists the fields, first those whose names begin like name.
func possible(name string) string {
	var near, names []string
	for _, f := range fields {
		plain := strings.TrimSuffix(f.name, ".")
		if name != "" && (strings.HasPrefix(plain, name) || strings.HasPrefix(name, plain)) {
			near = append(near, plain)
		}
		names = append(names, plain)
	}
	if near != nil {
		return strings.Join(near, " or ") + ", or another of " + strings.Join(names, " ")
	}
	return "one of " + strings.Join(names, " ")
}

// values reads the rest of the word: values with commas between them. want is what a value that is missing
// may be.
func (w *word) values(want string) (values []pattern, err error) {
	var b strings.Builder
	one := pattern{}
	given := false // whether the value has begun
	end := func() error {
		if !given {
			return w.wrong("the value", "%s", want)
		}
		values = append(values, pattern{append(one.parts, b.String())})
		one, given = pattern{}, false
		b.Reset()
		return nil
	}
	for w.more() {
		given = given || w.text[w.at] != ','
		switch c := w.text[w.at]; c {
		case '"':
			text, err := w.quoted()
			if err != nil {
				return nil, err
			}
			b.WriteString(text)
			continue
		case ',':
			if err := end(); err != nil {
				return nil, err
			}
		case '*':
			one.parts = append(one.parts, b.String())
			b.Reset()
		case '\\':
			if w.at++; !w.more() {
				return nil, w.wrong(`the \`, `a character behind it, or \\`)
			}
			b.WriteByte(w.text[w.at])
		default:
			b.WriteByte(c)
		}
		w.at++
	}
	return values, end()
}

// quoted reads a text in quotes.
func (w *word) quoted() (string, error) {
	var b strings.Builder
	for i := w.at + 1; i < len(w.text); i++ {
		switch c := w.text[i]; {
		case c == '"':
			w.at = i + 1
			return b.String(), nil
		case c == '\\' && i+1 < len(w.text):
			i++
			b.WriteByte(w.text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", w.wrong("the quote", "a second quote that ends it")
}

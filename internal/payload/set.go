package payload

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// Setting is a new value for one field of parameters.
type Setting struct {
	Path  string // the names of the fields that lead to it, or the numbers of elements, with dots between them
	Value string // JSON, or a text without quotes
}

// SettingOf parses a setting such as "user.name=bob".
func SettingOf(text string) (Setting, error) {
	path, value, ok := strings.Cut(text, "=")
	if !ok || path == "" {
		return Setting{}, storage.Invalid("setting", text, "a field and its value, such as user.name=bob")
	}
	if !utf8.ValidString(text) {
		return Setting{}, notUTF8("setting", len(text))
	}
	return Setting{path, value}, nil
}

// Set returns the encoded parameters of a task with new values of some fields. A value is JSON, and any other
// value is a text. If the field has a text, the value is a text, too, unless it is JSON with quotes. Set
// adds a field that its object lacks, but neither an object nor an element of a list. It returns a
// *[storage.InvalidError] if a setting does not fit the parameters.
func Set(t *storage.Task, settings []Setting) ([]byte, error) {
	text, err := Params(*t).JSON()
	for i := 0; err == nil && i < len(settings); i++ {
		text, err = set(text, settings[i].Path, settings[i])
	}
	if err != nil {
		return nil, err
	}
	return Edit(t, text)
}

// set returns JSON in which the value at a path is replaced.
func set(text json.RawMessage, path string, s Setting) (json.RawMessage, error) {
	if path == "" {
		return s.like(text), nil
	}
	keys, values, err := members(text)
	if err != nil {
		return nil, err
	}
	at, rest := -1, ""
	for i, key := range keys { // names may have dots: the longest counts, and of two equal ones the last
		if tail, ok := strings.CutPrefix(path, key); ok && (at < 0 || len(key) >= len(keys[at])) {
			if tail == "" {
				at, rest = i, ""
			} else if after, dot := strings.CutPrefix(tail, "."); dot && after != "" {
				at, rest = i, after
			}
		}
	}
	isObject := text[0] == '{'
	switch {
	case at >= 0:
		values[at], err = set(values[at], rest, s)
	case isObject && !strings.Contains(path, "."):
		keys, values = append(keys, path), append(values, s.like(nil))
	default:
		err = storage.Invalid("field", s.Path, "a field that the parameters have, or a new one of an object that they have")
	}
	if err != nil {
		return nil, err
	}
	return joined(isObject, keys, values)
}

// like returns the value as JSON of the kind that the value before has.
func (s Setting) like(before json.RawMessage) json.RawMessage {
	isText := len(before) > 0 && before[0] == '"'
	if json.Valid([]byte(s.Value)) && (!isText || s.Value[0] == '"') {
		return json.RawMessage(s.Value)
	}
	quoted, _ := json.Marshal(s.Value) //nolint:errchkjson // a text
	return quoted
}

// members returns the values of an object or a list, each with the name of its field or the number of its
// element. Other values have none.
func members(text json.RawMessage) (keys []string, values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	open, err := d.Token()
	if _, ok := open.(json.Delim); !ok || err != nil {
		return nil, nil, err
	}
	for d.More() {
		key := strconv.Itoa(len(keys))
		if open == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return nil, nil, err
			}
			key, _ = name.(string) // the decoder has checked it
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		keys, values = append(keys, key), append(values, value)
	}
	return keys, values, nil
}

// joined is the opposite of members.
func joined(isObject bool, keys []string, values []json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	open, end := byte('['), byte(']')
	if isObject {
		open, end = '{', '}'
	}
	b.WriteByte(open)
	for i, value := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		if isObject {
			key, err := json.Marshal(keys[i])
			if err != nil {
				return nil, err
			}
			b.Write(key)
			b.WriteByte(':')
		}
		b.Write(value)
	}
	b.WriteByte(end)
	return b.Bytes(), nil
}

// The bounds of Unusual: the longest path that it compares, in bytes, and how many paths it returns.
const (
	maxPath     = 200
	mostUnusual = 5
)

// Unusual returns the first fields of parameters that no sample has, by their paths, sorted. All elements of
// a list count as one. It returns none without a sample that can be read.
func Unusual(params []byte, samples ...Part) []string {
	given, some := make(map[string]bool), false // by path, whether a sample has the field
	paths(params, "", func(path string) bool {
		given[path] = false
		return true
	})
	for _, sample := range samples {
		if text, err := sample.JSON(); err == nil {
			some = true
			paths(text, "", func(path string) bool {
				_, is := given[path]
				if is {
					given[path] = true
				}
				return is
			})
		}
	}
	if !some {
		return nil
	}
	maps.DeleteFunc(given, func(_ string, known bool) bool { return known })
	unusual := slices.Sorted(maps.Keys(given))
	return unusual[:min(len(unusual), mostUnusual)]
}

// paths calls visit for the paths of all fields in JSON, and goes into a field if visit returns true. It
// leaves out fields with paths that no person writes: many of them would take much more memory than the JSON.
func paths(text json.RawMessage, above string, visit func(path string) bool) {
	keys, values, err := members(text)
	if err != nil {
		return
	}
	isObject := len(values) > 0 && bytes.TrimSpace(text)[0] == '{'
	for i, value := range values {
		path := above
		if isObject {
			if len(above)+len(keys[i]) >= maxPath {
				continue
			}
			if path = strings.TrimPrefix(above+"."+keys[i], "."); !visit(path) {
				continue
			}
		}
		paths(value, path, visit)
	}
}

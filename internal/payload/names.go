package payload

import (
	"bytes"
	"encoding/json"
	"strings"
)

// chosen is the depth of the objects whose names a user chooses, such as kinds and headers. A difference in
// upper and lower case counts there.
const chosen = 2

// NamesOf returns the names of a JSON object, and a name that stands twice in it or in an object within, ""
// for none. [json.Unmarshal] keeps the last of such values and drops the others. It also takes names for each
// other that differ in upper and lower case alone, and so does NamesOf, but for the names of the second level.
// The text has to be valid JSON.
func NamesOf(text []byte) (names []string, twice string) {
	w := walker{in: json.NewDecoder(bytes.NewReader(text))}
	w.value(1)
	return w.names, w.twice
}

// walker reads the names of JSON.
type walker struct {
	in    *json.Decoder
	names []string
	twice string
}

// value reads a value at a depth.
func (w *walker) value(depth int) {
	token, _ := w.in.Token() // the JSON is valid
	begin, ok := token.(json.Delim)
	if !ok {
		return
	}
	met := make(map[string]bool)
	for w.in.More() {
		if begin == '{' {
			w.name(depth, met)
		}
		w.value(depth + 1)
	}
	_, _ = w.in.Token() // the end of the list or of the object
}

// name reads the name of a member of an object. met has the names before it.
func (w *walker) name(depth int, met map[string]bool) {
	token, _ := w.in.Token()
	name, _ := token.(string)
	if depth == 1 {
		w.names = append(w.names, name)
	}
	same := name
	if depth != chosen {
		same = strings.ToLower(name)
	}
	if met[same] && w.twice == "" {
		w.twice = name
	}
	met[same] = true
}

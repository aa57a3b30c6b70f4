package codec

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
)

// deepError reports data that is nested too deep. Its steps lead there, the outermost first. Each is the
// name of a field or an entry, or "" for an item of a list.
type deepError struct{ steps []string }

func (e *deepError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the *InvalidError about all of the data.
func (e *deepError) Unwrap() error { return errNested().of("value", "", nil) }

// deepField returns an error of check about data of v. If the data is nested too deep, the error names the
// field as far as the type knows it.
func (s *shape) deepField(encoding string, v any, err error) error {
	if deep := (*deepError)(nil); errors.As(err, &deep) {
		return errNested().in(s.path(encoding, deep.steps)).of("value", "", reflect.TypeOf(v))
	}
	return err
}

// path returns the path along steps in data, up to a part of which the type knows nothing. The keys of maps
// are data, which no error quotes.
func (s *shape) path(encoding string, steps []string) (path string) {
	for _, name := range steps {
		if s = s.behindPointers(); s.isOpaque() {
			break
		}
		if s.named == nil {
			s, path = s.elem, path+"[]"
			continue
		}
		of, ok := s.named[folded(encoding, name)]
		if !ok {
			of, ok = s.was[folded(encoding, name)]
		}
		if !ok {
			break
		}
		s, path = of, joined(path, name)
	}
	return path
}

// within adds to an error of the i-th item of a MessagePack value, whose items begin at a position, the step
// to this item.
func (w msgpackWalk) within(err error, at, i int, isMap bool) error {
	deep, ok := err.(*deepError) //nolint:errorlint // made here, never wrapped
	if !ok {
		return err
	}
	name := ""
	if isMap && i%2 == 1 {
		for range i - 1 {
			at, _ = w.value(at, 0) // no error: these items were walked over before
		}
		text, length, _, _, _ := w.head(at)
		name = string(w.data[text : text+length])
	}
	deep.steps = slices.Insert(deep.steps, 0, name)
	return deep
}

// stepsJSON returns the steps to the end of data, the beginning of a JSON value.
func stepsJSON(data []byte) (steps []string) {
	begin, text := 0, false
	var last []byte // the last text
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			if text = !text; text {
				begin = i
			} else {
				last = data[begin : i+1]
			}
		case text:
			if c == '\\' {
				i++
			}
		case c == ':' && len(steps) > 0:
			var name string
			_ = json.Unmarshal(last, &name) // a text that is none is no field's name
			steps[len(steps)-1] = name
		case c == '[', c == '{':
			steps = append(steps, "")
		case (c == ']' || c == '}') && len(steps) > 0:
			steps = steps[:len(steps)-1]
		}
	}
	return steps
}

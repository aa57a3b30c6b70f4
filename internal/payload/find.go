package payload

import (
	"strconv"
	"time"

	"github.com/midgehq/midge/internal/codec"
)

// Scalar is one value of a payload that holds no other values.
type Scalar struct {
	// Text is the value as people write it: digits, a text, "true", "false", "null", or a moment in RFC 3339. A
	// number from JSON has the digits of the JSON.
	Text string
	// NoText is set for bytes and extensions, which have no text.
	NoText bool
	// Number means that Text is an integer or a float.
	Number bool
	// Moment is set if the value is a moment.
	Moment time.Time
}

// Values are the parameters of a task, prepared for looking up many paths.
type Values struct {
	packed []byte // checked MessagePack, nil if the payload was damaged
	exact  bool   // bytes in packed are the digits of a number
}

// ValuesOf decodes a payload. A damaged payload has no values.
func ValuesOf(encoding string, payload []byte) *Values {
	if check(encoding, payload) != nil {
		return &Values{}
	}
	if encoding != codec.JSON {
		return &Values{packed: payload}
	}
	w := newWriter(payload)
	w.exact = true
	if w.document(likeOf(nil)) != nil {
		return &Values{}
	}
	return &Values{packed: w.out, exact: true}
}

// Find calls found with each scalar at a path until found returns true, and reports whether it did. A step of
// a path is the name of a field or the number of an element. If the path has no number for a list, it leads to
// all elements of the list.
func (v *Values) Find(path []string, found func(Scalar) bool) bool {
	return len(v.packed) > 0 && find(v.packed, 0, path, func(is value) bool {
		if v.exact && is.kind == kindBytes {
			return found(Scalar{Text: string(is.body), Number: true})
		}
		return found(scalar(is))
	})
}

func find(data []byte, at int, path []string, found func(value) bool) bool {
	v, at := valueAt(data, at)
	switch {
	case v.kind == kindMap && len(path) > 0:
		for range v.items / 2 {
			key, next := valueAt(data, at)
			at = skipItems(data, next, key.items)
			if name, ok := nameOf(key); ok && name == path[0] && find(data, at, path[1:], found) {
				return true
			}
			at = skip(data, at)
		}
	case v.kind == kindArray:
		one := -1
		if len(path) > 0 {
			if n, err := strconv.Atoi(path[0]); err == nil && n >= 0 {
				one, path = n, path[1:]
			}
		}
		for i := range v.items {
			if (one < 0 || one == i) && find(data, at, path, found) {
				return true
			}
			at = skip(data, at)
		}
	case len(path) == 0 && v.kind != kindMap:
		return found(v)
	}
	return false
}

// nameOf returns the key of a map as JSON shows it, and reports whether it is a text or an integer.
func nameOf(key value) (string, bool) {
	switch key.kind {
	case kindText:
		return string(key.body), true
	case kindInt:
		return key.digits(), true
	default:
		return "", false
	}
}

func scalar(v value) Scalar {
	switch v.kind {
	case kindNil:
		return Scalar{Text: "null"}
	case kindBool:
		return Scalar{Text: strconv.FormatBool(v.flag)}
	case kindInt:
		return Scalar{Text: v.digits(), Number: true}
	case kindFloat:
		return Scalar{Text: strconv.FormatFloat(v.float, 'g', -1, v.bits), Number: true}
	case kindText:
		return Scalar{Text: string(v.body)}
	case kindTime:
		return Scalar{Text: v.at.Format(time.RFC3339Nano), Moment: v.at}
	default:
		return Scalar{NoText: true}
	}
}

package payload

import (
	"encoding/base64"
	"encoding/json"
	"math/bits"
	"strconv"

	"github.com/midgehq/midge/storage"
)

// stands writes the value that an object stands for. The name of its first member was read.
func (w *writer) stands(name string, like example) error {
	write, ok := map[string]func(example) error{
		asBytes: w.bytes, asText: w.invalidText, asFloat: w.special, asExtension: w.extension, asMap: w.pairs,
	}[name]
	if !ok {
		return noName(name)
	}
	if err := write(like); err != nil {
		return err
	}
	token, err := w.token()
	if err == nil && token != json.Delim('}') {
		err = storage.Invalid("object", name, "no other member beside it")
	}
	return err
}

// noName returns the error of a member whose name begins with one "$" and has no meaning in its place.
func noName(name string) error {
	return storage.Invalid("member", name, "a name without $, or $%s for one that begins with it", name)
}

// base64 reads a text in base64 that stands for a value of kind want.
func (w *writer) base64(token json.Token, want kind) ([]byte, error) {
	text, ok := token.(string)
	b, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil {
		return nil, w.invalid(text, want)
	}
	return b, nil
}

func (w *writer) bytes(like example) error {
	token, err := w.token()
	if err != nil {
		return err
	}
	b, err := w.base64(token, kindBytes)
	if err != nil {
		return err
	}
	if _, _, ok, wanted := w.find(like, kindBytes); !ok && wanted != kindNil {
		return w.invalid("bytes", wanted)
	}
	w.head(0, -1, 0xc4, len(b))
	w.out = append(w.out, b...)
	return nil
}

func (w *writer) invalidText(like example) error {
	token, err := w.token()
	if err != nil {
		return err
	}
	b, err := w.base64(token, kindText)
	if err != nil {
		return err
	}
	if _, _, ok, wanted := w.find(like, kindText); !ok && wanted != kindNil {
		return w.invalid("a text", wanted)
	}
	w.string(string(b))
	return nil
}

func (w *writer) special(like example) error {
	token, err := w.token()
	if err != nil {
		return err
	}
	text, _ := token.(string)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return w.invalid(text, kindFloat)
	}
	v, _, ok, wanted := w.find(like, kindFloat)
	if !ok && wanted != kindNil {
		return w.invalid(text, wanted)
	}
	if !ok {
		v.bits = 64
	}
	w.float(f, v.bits)
	return nil
}

func (w *writer) extension(like example) error {
	if _, _, ok, wanted := w.find(like, kindExtension); !ok && wanted != kindNil {
		return w.invalid("an extension", wanted)
	}
	var tokens [4]json.Token
	for i := range tokens {
		var err error
		if tokens[i], err = w.token(); err != nil {
			return err
		}
	}
	number, _ := tokens[1].(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 8)
	if err != nil || tokens[0] != json.Delim('[') || tokens[3] != json.Delim(']') {
		return w.invalid("something else", kindExtension)
	}
	b, err := w.base64(tokens[2], kindExtension)
	if err != nil {
		return err
	}
	if code := bits.Len(uint(len(b))) - 1; code >= 0 && code <= 4 && len(b) == 1<<code {
		w.out = append(w.out, 0xd4+byte(code))
	} else {
		w.head(0, -1, 0xc7, len(b))
	}
	w.out = append(append(w.out, byte(n)), b...)
	return nil
}

// pairs writes a map with keys of any kind. Its entries are lists of a key and a value.
func (w *writer) pairs(like example) error {
	old, at, ok, wanted := w.find(like, kindMap)
	if !ok && wanted != kindNil {
		return w.invalid("an object", wanted)
	}
	flat := w.elementsOf(like.data, old.items, at)
	open, err := w.token()
	if err != nil || open != json.Delim('[') {
		return w.invalid("something else", kindMap)
	}
	return w.headed(0x80, 0xde, func() (n int, err error) {
		for w.in.More() {
			if err := w.pair(flat, n); err != nil {
				return 0, err
			}
			n++
		}
		_, err = w.token() // the bracket
		return n, err
	})
}

func (w *writer) pair(flat elements, n int) error {
	open, err := w.token()
	if err != nil || open != json.Delim('[') {
		return w.invalid("something else", kindMap)
	}
	for i := range 2 {
		like := flat.element(2*n + i)
		like.strict = false
		if err := w.item(strconv.Itoa(n), nil, like); err != nil {
			return err
		}
	}
	shut, err := w.token()
	if err != nil || shut != json.Delim(']') {
		return w.invalid("a list of more than two", kindMap)
	}
	return nil
}

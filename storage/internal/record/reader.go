package record

import (
	"encoding/binary"
	"encoding/json"
	"time"
)

// AppendText appends a text to b, after its length.
func AppendText[T string | []byte](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// Reader reads packed bytes from their beginning. A value that cannot be read is zero, and sets Bad.
type Reader struct {
	Rest []byte // the bytes that are not read yet
	Bad  bool
}

// Number reads a varint.
func (r *Reader) Number() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Take reads n bytes. They share the memory of the reader.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.Rest)) {
		r.Bad = true
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Bytes reads a length and as many bytes. They share the memory of the reader.
func (r *Reader) Bytes() []byte { return r.Take(r.Number()) }

// JSON reads a length and a value that was packed as JSON, into v.
func (r *Reader) JSON(v any) { r.Bad = json.Unmarshal(r.Bytes(), v) != nil || r.Bad }

func (r *Reader) span() time.Duration { return time.Duration(r.Number()) * time.Microsecond }

func (r *Reader) headers() map[string]string {
	pairs, headers := Reader{Rest: r.Bytes()}, make(map[string]string)
	for len(pairs.Rest) > 0 && !pairs.Bad {
		name := string(pairs.Bytes())
		headers[name] = string(pairs.Bytes())
	}
	r.Bad = r.Bad || pairs.Bad
	return headers
}

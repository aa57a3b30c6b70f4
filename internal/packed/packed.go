// Package packed reads and writes the bytes in which midge keeps records, reports and pages: varints, and texts
// behind their lengths.
package packed

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
)

// AppendText appends a text to b, after its length.
func AppendText[T string | []byte](b []byte, text T) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// Seal appends the checksum of b.
func Seal(b []byte) []byte { return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// Unseal returns the bytes between the first byte, which must be format, and the checksum. It returns false
// if b is damaged or of another format.
func Unseal(b []byte, format byte) ([]byte, bool) {
	end := len(b) - 4
	if end < 1 || b[0] != format || crc32.ChecksumIEEE(b[:end]) != binary.BigEndian.Uint32(b[end:]) {
		return nil, false
	}
	return b[1:end], true
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

// Size reads a varint that fits into an int64.
func (r *Reader) Size() int64 {
	n := int64(r.Number())
	r.Bad = r.Bad || n < 0
	return max(n, 0)
}

// Delta reads a varint that may be negative.
func (r *Reader) Delta() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.Bad = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Byte reads a byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
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

// Text reads a text.
func (r *Reader) Text() string { return string(r.Bytes()) }

// JSON reads a length and a value that was packed as JSON, into v.
func (r *Reader) JSON(v any) { r.Bad = json.Unmarshal(r.Bytes(), v) != nil || r.Bad }

package postgres

import "encoding/base32"

// A task id that storage.NewID made is stored as its 16 bytes, any other id as its text. The two
// cannot be confused: a text begins with a letter or digit, which is 0x30 or more, and the 16 bytes
// begin with the top byte of a time, which is smaller until the year 3600.

var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	madeLength = 26   // of an id that storage.NewID made
	madeBytes  = 16   // of its stored form
	firstText  = 0x30 // '0'
)

// packID returns the stored form of an id.
func packID(id string) []byte {
	if b, made := packMade(id); made {
		return b[:]
	}
	return []byte(id)
}

// packMade returns the stored form of an id that storage.NewID made; made is false for any other id.
func packMade(id string) (b [madeBytes]byte, made bool) {
	if len(id) != madeLength {
		return b, false
	}
	n, err := alphabet.Decode(b[:], []byte(id))
	if err != nil || n != madeBytes || b[0] >= firstText {
		return b, false
	}
	// The last digit has more bits than are left to encode, so some texts of this length are not made
	// ids.
	var again [madeLength]byte
	alphabet.Encode(again[:], b[:])
	return b, string(again[:]) == id
}

// unpackID returns the id of a stored form, "" for bytes that packID has not written.
func unpackID(b []byte) string {
	if len(b) != madeBytes || b[0] >= firstText {
		id := string(b)
		if _, made := packMade(id); made {
			return ""
		}
		return id
	}
	var id [madeLength]byte
	alphabet.Encode(id[:], b)
	return string(id[:])
}

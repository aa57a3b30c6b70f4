package postgres

import "encoding/base32"

// A task id that storage.NewID made is kept as its 16 bytes, any other as its text. The
// two cannot be confused: a text begins with a letter or digit, 0x30 or more, and those
// 16 bytes with the top of a time, which is less until the year 3600.

var alphabet = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	madeLength = 26   // of an id that storage.NewID made
	madeBytes  = 16   // of what is kept of it
	firstText  = 0x30 // '0'
)

// packID gives what is kept of an id.
func packID(id string) []byte {
	if b, made := packMade(id); made {
		return b[:]
	}
	return []byte(id)
}

// packMade gives what is kept of an id that storage.NewID made.
func packMade(id string) (b [madeBytes]byte, made bool) {
	if len(id) != madeLength {
		return b, false
	}
	n, err := alphabet.Decode(b[:], []byte(id))
	if err != nil || n != madeBytes || b[0] >= firstText {
		return b, false
	}
	// The last digit stands for fewer bits than it has: some texts are no id's.
	var again [madeLength]byte
	alphabet.Encode(again[:], b[:])
	return b, string(again[:]) == id
}

// unpackID gives an id as callers know it, "" for what packID has not written.
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

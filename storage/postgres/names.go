package postgres

import (
	"encoding/base32"
	"strings"
)

// A task id that storage.NewID made is kept as its 16 bytes, any other as its text. The
// two cannot be confused: a text begins with a letter or digit, 0x30 or more, and those
// 16 bytes with the top of a time, which is less until the year 3600.

var alphabet = base32.HexEncoding.WithPadding(base32.NoPadding)

const (
	madeLength = 26   // of an id that storage.NewID made
	firstText  = 0x30 // '0'
)

// packID gives what is kept of an id.
func packID(id string) []byte {
	if len(id) == madeLength {
		b, err := alphabet.DecodeString(strings.ToUpper(id))
		if err == nil && len(b) == 16 && b[0] < firstText && unpackID(b) == id {
			return b
		}
	}
	return []byte(id)
}

// unpackID gives an id as callers know it.
func unpackID(b []byte) string {
	if len(b) != 16 || b[0] >= firstText {
		return string(b)
	}
	return strings.ToLower(alphabet.EncodeToString(b))
}

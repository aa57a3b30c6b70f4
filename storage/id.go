package storage

import (
	"crypto/rand"
	"encoding/base32"
	"time"
)

// NewID makes a task id: 26 lower-case characters that sort by the time of their
// making, 48 bits of milliseconds and 80 random bits, as a ULID has them
// (github.com/ulid/spec), in base32hex.
func NewID() string {
	var b [16]byte
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	_, _ = rand.Read(b[6:]) // never fails (crypto/rand)
	return idEncoding.EncodeToString(b[:])
}

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// NewToken makes the token of one Claim call.
func NewToken() Token { return Token(random16()) }

func random16() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return b
}

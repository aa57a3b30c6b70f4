package access

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // for known
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/midgehq/midge/storage"
)

// rounds is how many iterations of PBKDF2 a new password takes, as OWASP recommends for HMAC-SHA-256.
const rounds = 600_000

// Bounds of the length of new passwords, in bytes, of the different characters in them, and of the rounds of
// a hash in a file.
const (
	minPassword = 10
	maxPassword = 1 << 10
	minSigns    = 5
	leastRounds = 10_000
	mostRounds  = 10_000_000
)

// scheme names the function that hashed a password.
const scheme = "pbkdf2-sha256"

// hashed is the hash of a password.
type hashed struct {
	rounds int
	salt   []byte
	sum    []byte
}

// known has, in small letters and sorted, the passwords of ten and more characters among the 47,000 most
// frequent ones that zxcvbn (MIT license) has counted.
//
//go:embed known.txt
var known string

// checkPassword returns an *[storage.InvalidError] for a new password that is short or easily guessed.
func checkPassword(user, password string) error {
	small, signs := strings.ToLower(password), make(map[rune]bool)
	for _, sign := range password {
		signs[sign] = true
	}
	switch n := len(password); {
	case n < minPassword || n > maxPassword:
		return storage.Invalid("password", fmt.Sprintf("of %d bytes", n),
			"%d to %d bytes", minPassword, maxPassword)
	case len(signs) < minSigns:
		return storage.Invalid("password", fmt.Sprintf("of %d different characters", len(signs)),
			"%d different characters", minSigns)
	case small == strings.ToLower(user) || strings.Contains("\n"+known, "\n"+small+"\n"):
		return storage.Invalid("password", "that many others have", "one that is on no list, such as four words")
	}
	return nil
}

// hash hashes a password under a new salt.
func hash(password string, n int) (hashed, error) {
	h := hashed{rounds: n, salt: make([]byte, 16)}
	_, _ = rand.Read(h.salt) // never fails
	sum, err := pbkdf2.Key(sha256.New, password, h.salt, h.rounds, sha256.Size)
	h.sum = sum
	return h, err
}

// is reports whether h is the hash of the password. A wrong password takes as long as the right one.
func (h hashed) is(password string) bool {
	sum, err := pbkdf2.Key(sha256.New, password, h.salt, h.rounds, sha256.Size)
	return err == nil && subtle.ConstantTimeCompare(sum, h.sum) == 1
}

// String returns the hash as the file of users contains it.
func (h hashed) String() string {
	text := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("%s$%d$%s$%s", scheme, h.rounds, text(h.salt), text(h.sum))
}

// parseHash reads the text that String returns.
func parseHash(text string) (hashed, error) {
	fields := strings.Split(text, "$")
	if len(fields) != 4 || fields[0] != scheme {
		return hashed{}, errHash
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil || n < leastRounds || n > mostRounds {
		return hashed{}, errHash
	}
	salt, err := base64.RawStdEncoding.DecodeString(fields[2])
	if err != nil || len(salt) < 8 || len(salt) > 64 {
		return hashed{}, errHash
	}
	sum, err := base64.RawStdEncoding.DecodeString(fields[3])
	if err != nil || len(sum) != sha256.Size {
		return hashed{}, errHash
	}
	return hashed{rounds: n, salt: salt, sum: sum}, nil
}

var errHash = fmt.Errorf("want a password hashed as %s$rounds$salt$sum", scheme)

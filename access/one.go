package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/midgehq/midge/storage"
)

// A token of [OneUser] has so many characters. 22 characters of the alphabet below hold 132 bits.
const (
	minToken = 22
	maxToken = 1 << 10
)

// tokenSigns are the characters of a token: none needs an escape in an address.
const tokenSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// OneUser returns Users with a single user, who logs in by a token instead of a name and a password: see
// [Users.LoginByToken]. The token has 22 to 1,024 letters, digits, '-' and '_' and at least 128 random bits,
// as the text that crypto/rand.Text returns. Processes with the same user and token share the sessions.
// Another token has cookies of another name, so that a browser holds sessions of several processes on one
// machine, whose ports cookies do not distinguish. Set and Remove fail, because there is no file. For bad
// input OneUser returns an *[storage.InvalidError], which does not contain the token.
func OneUser(user User, token string) (*Users, error) {
	if err := checkUserName(user.Name); err != nil {
		return nil, err
	}
	if err := user.Role.Check(); err != nil {
		return nil, err
	}
	if n := len(token); n < minToken || n > maxToken || strings.Trim(token, tokenSigns) != "" {
		return nil, storage.Invalid("token", fmt.Sprintf("of %d bytes", n),
			"%d to %d letters, digits, '-' and '_' with 128 random bits, as crypto/rand.Text makes",
			minToken, maxToken)
	}
	u := newUsers("")
	key := sha256.Sum256([]byte(token))
	u.file.fixed = true
	u.file.value = register{key: key[:], users: []entry{{User: user}}}
	u.mark = "_" + hex.EncodeToString(u.file.value.mac("cookie")[:4])
	return u, nil
}

// LoginByToken returns the user of the token of [OneUser]. The error is [ErrDenied] for another token,
// and for Users that were not made by OneUser.
func (u *Users) LoginByToken(token string) (User, error) {
	given := sha256.Sum256([]byte(token))
	if !u.file.fixed || !hmac.Equal(given[:], u.file.value.key) {
		return User{}, ErrDenied
	}
	return u.file.value.users[0].User, nil
}

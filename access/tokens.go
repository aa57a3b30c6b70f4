package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// TokenPrefix begins every token, so that a scanner for secrets finds a token that has leaked.
const TokenPrefix = "mdg_"

// Grant is the permission of a token: some verbs in some queues.
type Grant struct {
	// ID names the token in lists and in the audit. It is part of the token, and not secret.
	ID string
	// Verbs are the verbs that the token permits.
	Verbs []Verb
	// Queues are patterns, such as "mail" or "mail:*", in which '*' stands for any text and '?' for one
	// character. No pattern matches a queue of midge's own.
	Queues []string
	// Expires is when the token ends, zero for never.
	Expires time.Time
}

// May reports whether the grant permits the verb in all of the queues. It is false without a queue. May does
// not check Expires: [Tokens.Grant] returns no grant that has ended.
func (g *Grant) May(v Verb, queues ...string) bool {
	if !slices.Contains(g.Verbs, v) || len(queues) == 0 {
		return false
	}
	for _, queue := range queues {
		if storage.Reserved(queue) || !slices.ContainsFunc(g.Queues, func(pattern string) bool {
			ok, err := path.Match(pattern, queue)
			return ok && err == nil
		}) {
			return false
		}
	}
	return true
}

// Tokens is a file with the tokens of programs. It has one token a line, and only its owner may read it
// (permissions 0600).
//
//	token 4k2f read,enqueue mail,mail:* 2027-01-01T00:00:00Z 9f86d0…
//
// A line has the id, the verbs, the patterns of queues, the end or "never", and the SHA-256 of the token. The
// token itself is not in the file. The file is read again within 5 seconds after it has changed. While it
// cannot be read, no token is accepted. To replace a token without a break, add the new one before you remove
// the old one. The methods are safe for concurrent use.
type Tokens struct {
	file     *file[[]token]
	throttle *throttle
}

// token is one line of the file.
type token struct {
	Grant

	sum [sha256.Size]byte
}

// OpenTokens reads a file of tokens. The error names the fault of the file, and wraps fs.ErrNotExist if
// it does not exist.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{file: &file[[]token]{path: path, parse: parseTokens}, throttle: newThrottle()}
	if _, err := t.file.again(); err != nil {
		return nil, err
	}
	return t, nil
}

// CreateToken makes a token, adds it to the file at path, and returns it. The token cannot be read from the
// file later. CreateToken makes the file if there is none, and an ID if g has none. For bad input it returns
// an *[storage.InvalidError].
func CreateToken(path string, g Grant) (string, error) {
	var random [20]byte
	_, _ = rand.Read(random[:]) // never fails
	if g.ID == "" {
		g.ID = small32(random[:5])
		_, _ = rand.Read(random[:5]) // the id shows nothing of the secret
	}
	if err := g.check(); err != nil {
		return "", err
	}
	secret := TokenPrefix + g.ID + "_" + small32(random[:])
	f := &file[[]token]{path: path, parse: parseTokens}
	err := f.replace(func(text string) (string, error) {
		if text == "" {
			text = "# Tokens of midge: token ID VERBS QUEUES END SHA-256.\n"
		}
		return text + token{g, sha256.Sum256([]byte(secret))}.line(), nil
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// RemoveToken removes the token with an id. The error wraps fs.ErrNotExist if there is none.
func RemoveToken(path, id string) error {
	f := &file[[]token]{path: path, parse: parseTokens}
	return f.replace(func(text string) (string, error) {
		var kept strings.Builder
		found := false
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "token" && fields[1] == id {
				found = true
				continue
			}
			kept.WriteString(strings.TrimRight(line, "\r\n") + "\n")
		}
		if !found {
			return "", fmt.Errorf("token %s: %w", storage.PrintableText(id, storage.MaxName), fs.ErrNotExist)
		}
		return kept.String(), nil
	})
}

// List returns the grants of all tokens, in the order of their ids.
func (t *Tokens) List() ([]Grant, error) {
	all, err := t.file.get()
	if err != nil {
		return nil, err
	}
	grants := make([]Grant, len(all))
	for i := range all {
		grants[i] = all[i].Grant
	}
	return grants, nil
}

// Grant returns the grant of a token. remote is the address from which it came, in the form of
// http.Request.RemoteAddr. The error is [ErrDenied] if there is no such token or it has ended, and a
// *[ThrottledError] instead if the address has shown 20 such tokens within a minute. Any other error names
// the reason why the file cannot be read. A valid token is never refused because of others from its address.
func (t *Tokens) Grant(remote, secret string) (Grant, error) {
	all, err := t.file.get()
	if err != nil {
		return Grant{}, err
	}
	sum := sha256.Sum256([]byte(secret))
	found := -1
	for i := range all { // all of them, so that the time does not show which of them matched
		if subtle.ConstantTimeCompare(sum[:], all[i].sum[:]) == 1 {
			found = i
		}
	}
	if found >= 0 && !all[found].ended() {
		return all[found].Grant, nil
	}
	if err := t.throttle.charge(origin(remote)); err != nil {
		return Grant{}, err
	}
	return Grant{}, ErrDenied
}

func (g *Grant) ended() bool { return !g.Expires.IsZero() && !time.Now().Before(g.Expires) }

// Bearer returns the token in the Authorization header of a request, or "" if there is none.
func Bearer(r *http.Request) string {
	kind, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// small32 encodes bytes in base32, with small letters and digits.
func small32(b []byte) string {
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}

// never stands in the file for the end of a token that does not expire.
const never = "never"

// line returns the token as a line of the file.
func (t token) line() string {
	verbs := make([]string, len(t.Verbs))
	for i, v := range t.Verbs {
		verbs[i] = string(v)
	}
	end := never
	if !t.Expires.IsZero() {
		end = t.Expires.UTC().Format(time.RFC3339)
	}
	return strings.Join([]string{
		"token", t.ID, strings.Join(verbs, ","), strings.Join(t.Queues, ","), end, hex.EncodeToString(t.sum[:]),
	}, " ") + "\n"
}

// check returns an *[storage.InvalidError] for a grant that a file cannot contain.
func (g *Grant) check() error {
	if len(g.ID) > 64 || strings.ContainsFunc(g.ID, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) || g.ID == "" {
		return storage.Invalid("token id", g.ID, "1 to 64 small letters, digits and '-'")
	}
	for _, v := range g.Verbs {
		if !slices.Contains(Verbs(), v) {
			return storage.Invalid("verb", string(v), "one of %s", listed(Verbs()))
		}
	}
	for _, pattern := range g.Queues {
		name := strings.NewReplacer("*", "x", "?", "x").Replace(pattern)
		if storage.CheckName("queue", name) != nil {
			return storage.Invalid("pattern of queues", pattern,
				"a queue's name, with '*' for any text and '?' for one character")
		}
	}
	if len(g.Verbs) == 0 || len(g.Queues) == 0 {
		return storage.Invalid("token", g.ID, "at least one verb and one queue")
	}
	return nil
}

// parseTokens reads the text of a file of tokens. The error names the line.
func parseTokens(text string) ([]token, error) {
	var all []token
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b token) int { return strings.Compare(a.ID, b.ID) })
	for i := range all {
		if i > 0 && all[i].ID == all[i-1].ID {
			return nil, fmt.Errorf("token %s is there twice", all[i].ID)
		}
	}
	return all, nil
}

func parseToken(fields []string) (token, error) {
	var t token
	if len(fields) != 6 || fields[0] != "token" {
		return t, errors.New(`want "token ID VERBS QUEUES END SHA-256"`)
	}
	t.ID, t.Queues = fields[1], strings.Split(fields[3], ",")
	for v := range strings.SplitSeq(fields[2], ",") {
		t.Verbs = append(t.Verbs, Verb(v))
	}
	if fields[4] != never {
		at, err := time.Parse(time.RFC3339, fields[4])
		if err != nil {
			return t, fmt.Errorf("want an end as in 2027-01-01T00:00:00Z, or %q", never)
		}
		t.Expires = at
	}
	sum, err := hex.DecodeString(fields[5])
	if err != nil || len(sum) != len(t.sum) {
		return t, errors.New("want the SHA-256 of a token, in hexadecimal")
	}
	copy(t.sum[:], sum)
	return t, t.check()
}

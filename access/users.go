package access

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/midgehq/midge/storage"
)

// Users is a file of users. It has one user a line, and only its owner may read it (permissions 0600).
//
//	key <256 random bits, in base64>
//	user ann admin pbkdf2-sha256$600000$…
//
// Lines that are empty or begin with '#' are ignored. The file is read again within 5 seconds after it has
// changed, also if another process has changed it. The sessions of a user who is removed, or has a new
// password or role, then end. While the file cannot be read, nobody is let in. The key signs sessions, so
// processes that share the file share the sessions, and a new key ends all of them. The methods are safe for
// concurrent use.
type Users struct {
	file     *file[register]
	throttle *throttle
	mark     string // ends the names of cookies
	rounds   int    // of new passwords
	pauses   pauses
	// hashing and hashingKnown have an element for each password that is being hashed. The second is for
	// browsers in which the user has logged in before.
	hashing, hashingKnown chan struct{}

	mu    sync.Mutex       // guards ended
	ended map[session]bool // the sessions that EndSession has ended, until they are over
}

// register is the parsed text of a file of users.
type register struct {
	key   []byte
	users []entry // sorted by name
}

// entry is one user with its password.
type entry struct {
	User

	password hashed
}

// ErrDenied is the error of a login with a wrong name or password. It does not show which of them is wrong.
var ErrDenied = errors.New("access: wrong name or password")

// OpenUsers reads a file of users. The error names the fault of the file, such as that others may read it,
// and wraps fs.ErrNotExist if it does not exist.
func OpenUsers(path string) (*Users, error) {
	u := newUsers(path)
	_, err := u.file.again()
	if err != nil {
		return nil, err
	}
	return u, nil
}

// CreateUsers makes a file without users, with permissions 0600. The error wraps fs.ErrExist if the file
// exists.
func CreateUsers(path string) (*Users, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("access: create %s: %w", path, fs.ErrExist)
	}
	u := newUsers(path)
	err := u.file.replace(func(text string) (string, error) {
		if text != "" {
			return "", fs.ErrExist
		}
		var key [32]byte
		_, _ = rand.Read(key[:]) // never fails
		return "# Users of midge: user NAME ROLE PASSWORD, hashed.\nkey " +
			base64.RawStdEncoding.EncodeToString(key[:]) + "\n", nil
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

func newUsers(path string) *Users {
	return &Users{
		file: &file[register]{path: path, parse: parseUsers}, throttle: newThrottle(), rounds: rounds,
		hashing: make(chan struct{}, hashesAtOnce), hashingKnown: make(chan struct{}, 1),
	}
}

// List returns the users, sorted by name.
func (u *Users) List() ([]User, error) {
	all, err := u.file.get()
	if err != nil {
		return nil, err
	}
	users := make([]User, len(all.users))
	for i := range all.users {
		users[i] = all.users[i].User
	}
	return users, nil
}

// Set adds a user, or changes the password and the role of an existing one. A new password has 10 to 1,024
// bytes and 5 different characters, is not the name of the user, and is not on a list of known passwords. The
// password "" keeps the password of an existing user. For bad input Set returns an *[storage.InvalidError].
func (u *Users) Set(user User, password string) error {
	if err := errors.Join(checkUserName(user.Name), user.Role.Check()); err != nil {
		return err
	}
	var sum string
	if password != "" {
		if err := checkPassword(user.Name, password); err != nil {
			return err
		}
		h, err := hash(password, u.rounds)
		if err != nil {
			return fmt.Errorf("access: hash a password: %w", err)
		}
		sum = h.String()
	}
	return u.file.replace(func(text string) (string, error) {
		kept, old := without(text, user.Name)
		if sum == "" && old == "" {
			return "", storage.Invalid("password", "", "one for a new user")
		}
		if sum == "" {
			sum = old
		}
		return kept + strings.Join([]string{"user", user.Name, string(user.Role), sum}, " ") + "\n", nil
	})
}

// Remove removes a user. The error wraps fs.ErrNotExist if there is no user of that name.
func (u *Users) Remove(name string) error {
	if err := checkUserName(name); err != nil {
		return err
	}
	return u.file.replace(func(text string) (string, error) {
		kept, old := without(text, name)
		if old == "" {
			return "", fmt.Errorf("user %s: %w", name, fs.ErrNotExist)
		}
		return kept, nil
	})
}

// without returns the text of the file without the line of a user, and that user's hashed password, or "" if
// there is no such user.
func without(text, name string) (kept, password string) {
	var lines []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "user" && fields[1] == name {
			password = fields[3]
			continue
		}
		lines = append(lines, strings.TrimRight(line, "\r\n")+"\n")
	}
	return strings.Join(lines, ""), password
}

// find returns the user with a name, and reports whether there is one.
func (r *register) find(name string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(r.users, name, func(e entry, name string) int {
		return strings.Compare(e.Name, name)
	})
	if !ok {
		return entry{}, false
	}
	return r.users[i], true
}

// parseUsers reads the text of a file of users. The error names the line.
func parseUsers(text string) (register, error) {
	var r register
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := r.parseLine(fields); err != nil {
			return register{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if r.key == nil {
		return register{}, errors.New(`want a line "key" with 256 random bits in base64`)
	}
	slices.SortFunc(r.users, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	for i := range r.users {
		if i > 0 && r.users[i].Name == r.users[i-1].Name {
			return register{}, fmt.Errorf("user %s is there twice", r.users[i].Name)
		}
	}
	return r, nil
}

func (r *register) parseLine(fields []string) error {
	switch {
	case fields[0] == "key" && len(fields) == 2 && r.key == nil:
		key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(fields[1], "="))
		if err != nil || len(key) < 32 {
			return errors.New("want a key of 256 random bits in base64")
		}
		r.key = key
		return nil
	case fields[0] == "user" && len(fields) == 4:
		e := entry{User: User{Name: fields[1], Role: Role(fields[2])}}
		password, err := parseHash(fields[3])
		e.password = password
		r.users = append(r.users, e)
		return errors.Join(checkUserName(e.Name), e.Role.Check(), err)
	}
	return errors.New(`want "user NAME ROLE PASSWORD", or "key KEY" once`)
}

// checkUserName returns an *[storage.InvalidError] unless a name has 1 to 64 letters, digits and the signs
// below, and does not begin with "-".
func checkUserName(name string) error {
	ok := name != "" && len(name) <= 64
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || strings.IndexByte("_.@+-", c) >= 0)
	}
	if !ok || name[0] == '-' {
		return storage.Invalid("user name", name, "1 to 64 letters, digits, '_', '.', '@', '+', '-'")
	}
	return nil
}

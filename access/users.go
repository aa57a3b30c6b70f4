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

// Users are the users of a file: a text with one user a line, which its owner alone may read
// (permissions 0600).
//
//	key <256 random bits, in base64>
//	user ann admin pbkdf2-sha256$600000$…
//
// Lines that are empty or begin with '#' mean nothing. The file is read again within 5 seconds
// after it has changed, also by another process: a user that is removed, or has a new password or
// role, loses its session then. While the file cannot be read, nobody is let in. Sessions are
// signed with the key: processes that share the file share them, and a new key ends them all. The
// methods are safe for concurrent use.
type Users struct {
	file     *file[register]
	throttle *throttle
	hashing  chan struct{} // filled while a password is hashed
	rounds   int           // of new passwords
	dummy    func() hashed // what the password of a user that there is not is compared with

	mu    sync.Mutex
	ended map[session]bool // sessions that EndSession has ended, until they are over
}

// register is what a file of users says.
type register struct {
	key   []byte
	users []entry // by name
}

// entry is one user with its password.
type entry struct {
	User

	password hashed
}

// ErrDenied is the error of a login whose name or password is wrong. It does not tell which.
var ErrDenied = errors.New("access: wrong name or password")

// OpenUsers reads a file of users. The error says what is wrong with the file, such as that others
// may read it, and wraps fs.ErrNotExist where there is none.
func OpenUsers(path string) (*Users, error) {
	u := newUsers(path)
	_, err := u.file.again()
	if err != nil {
		return nil, err
	}
	return u, nil
}

// CreateUsers makes a file without users, with permissions 0600. The error wraps fs.ErrExist where
// there is a file.
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
		file: &file[register]{path: path, parse: parseUsers}, throttle: newThrottle(),
		hashing: make(chan struct{}, hashesAtOnce), rounds: rounds,
		dummy: sync.OnceValue(func() hashed {
			return hashed{rounds: rounds, salt: make([]byte, 16), sum: make([]byte, 32)}
		}),
	}
}

// List lists the users, by name.
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

// Set adds a user, or gives one that is there another password and role. A password has 8 to 1,024
// bytes; "" keeps that of a user who is there. Bad input is an *[storage.InvalidError].
func (u *Users) Set(user User, password string) error {
	if err := errors.Join(checkUserName(user.Name), user.Role.Check()); err != nil {
		return err
	}
	var sum string
	if password != "" {
		if err := checkPassword(password); err != nil {
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

// Remove removes a user. The error wraps fs.ErrNotExist where there is none of the name.
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

// without gives the text of the file without a user, and the user's hashed password, "" for none.
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

// find gives the user of a name.
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

// checkUserName gives an *InvalidError unless a name is of 1 to 64 letters, digits and some signs.
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

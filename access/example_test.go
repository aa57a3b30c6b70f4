package access_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/midgehq/midge/access"
)

func ExampleUsers() {
	folder, err := os.MkdirTemp("", "users")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	users, err := access.CreateUsers(filepath.Join(folder, "users"))
	if err != nil {
		panic(err)
	}
	if err := users.Set(access.User{Name: "ann", Role: access.Operator}, "correct horse battery"); err != nil {
		panic(err)
	}
	all, err := users.List()
	if err != nil {
		panic(err)
	}
	for _, user := range all {
		fmt.Println(user.Name, user.Role, user.May(access.Operate), user.May(access.Alter))
	}
	// Output: ann operator true false
}

// A dashboard for one user on this machine needs no file of users: its address has the token.
func ExampleOneUser() {
	token := rand.Text()
	users, err := access.OneUser(access.User{Name: "ann", Role: access.Admin}, token)
	if err != nil {
		panic(err)
	}
	user, err := users.LoginByToken(token)
	fmt.Println(user.Name, user.Role, err)
	_, err = users.LoginByToken(rand.Text())
	fmt.Println(errors.Is(err, access.ErrDenied))
	// Output:
	// ann admin <nil>
	// true
}

func ExampleCreateToken() {
	folder, err := os.MkdirTemp("", "tokens")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "tokens")
	secret, err := access.CreateToken(path, access.Grant{
		ID: "shop", Verbs: []access.Verb{access.Enqueue}, Queues: []string{"mail", "mail:*"},
	})
	if err != nil {
		panic(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		panic(err)
	}
	grant, err := tokens.Grant("192.0.2.1:4711", secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(grant.ID, grant.May(access.Enqueue, "mail:high"), grant.May(access.Enqueue, "billing"))
	// Output: shop true false
}

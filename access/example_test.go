package access_test

import (
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

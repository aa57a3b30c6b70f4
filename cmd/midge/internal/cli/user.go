package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/cmd/midge/internal/show"
)

var userList = show.List[access.User]{
	Columns: []show.Column[access.User]{
		{Name: "user", Text: func(_ *show.Printer, u access.User) string { return show.Text(u.Name) }},
		{Name: "role", Text: func(_ *show.Printer, u access.User) string { return string(u.Role) }},
	},
	Record: func(u access.User) any { return show.User{User: u.Name, Role: string(u.Role)} },
	ID:     func(u access.User) string { return u.Name },
}

func (a *app) user() *cobra.Command {
	var file string
	roles := make([]string, 0, len(access.Roles()))
	for _, r := range access.Roles() {
		roles = append(roles, string(r))
	}
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List users and their roles",
		Args: noArguments,
	}
	ls.RunE = a.quick(func(context.Context, []string) error {
		users, err := existingUsers(file)
		if err != nil {
			return err
		}
		all, err := users.List()
		if err != nil {
			return err
		}
		return userList.Write(a.printer(zeroTime), all)
	})
	set := &cobra.Command{
		Use: "set NAME", Short: "Add a user, or change the role or the password of a user",
		Long: "set asks for the password if standard input is a terminal, and otherwise reads\n" +
			"a line of it. An empty line keeps the password of an existing user.",
		Example: "  midge user set ann --role operator --users users.txt", Args: wants(1, 1, "the name of a user"),
	}
	role := set.Flags().String("role", "",
		strings.Join(roles, ", ")+" (default: the present role; viewer for a new user)")
	set.RunE = a.long(func(_ context.Context, args []string) error {
		if !set.Flags().Changed("role") {
			return a.setUser(file, args[0], nil)
		}
		given := access.Role(*role)
		return a.setUser(file, args[0], &given)
	})
	rm := &cobra.Command{
		Use: "rm NAME", Aliases: []string{"delete", "remove"}, Short: "Remove a user",
		Args: wants(1, 1, "the name of a user"),
	}
	rm.RunE = a.quick(func(_ context.Context, args []string) error {
		users, err := existingUsers(file)
		if err != nil {
			return err
		}
		if err := users.Remove(args[0]); errors.Is(err, fs.ErrNotExist) {
			return notFound("midge user ls --users "+file, "user %q not found", show.Text(args[0]))
		} else if err != nil {
			return err
		}
		a.notef("removed %s", args[0])
		return nil
	})
	cmd := noun("user", "List and change the users of the dashboard", []string{"users"}, ls, set, rm)
	cmd.PersistentFlags().StringVar(&file, "users", "", "the `file` of users")
	return cmd
}

// openUsers opens the file of users. The error wraps fs.ErrNotExist if the file does not exist. openUsers
// follows a symbolic link, because a change replaces the file and would otherwise replace the link.
func openUsers(file string) (*access.Users, error) {
	if file == "" {
		return nil, badInput("the file of users is wanted: --users FILE")
	}
	if linked, err := filepath.EvalSymlinks(file); err == nil {
		file = linked
	}
	return access.OpenUsers(file)
}

// existingUsers does the same as openUsers, for commands that create no file.
func existingUsers(file string) (*access.Users, error) {
	users, err := openUsers(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound("midge user set NAME --users "+file, "file %q not found", file)
	}
	return users, err
}

// setUser sets the password of a user, and the role if given is not nil.
func (a *app) setUser(file, name string, given *access.Role) error {
	if given != nil {
		if err := given.Check(); err != nil {
			return err
		}
	}
	users, err := openUsers(file)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return err
	}
	password, err := a.password(name)
	if err != nil {
		return err
	}
	if fresh { // only now, so that a command without a password leaves no file
		if users, err = access.CreateUsers(file); err != nil {
			return err
		}
	}
	role, err := setRole(users, name, password, given)
	if err != nil {
		if fresh {
			removeEmpty(file)
		}
		return err
	}
	a.notef("%s is %s", name, role)
	return nil
}

// setRole sets the password and the role of a user. If given is nil, the user keeps the present role.
func setRole(users *access.Users, name, password string, given *access.Role) (role access.Role, err error) {
	if given != nil {
		role = *given
	} else if role, err = roleOf(users, name); err != nil {
		return "", err
	}
	return role, users.Set(access.User{Name: name, Role: role}, password)
}

// removeEmpty removes a file that has no users. Another process may have added users to it.
func removeEmpty(file string) {
	if users, err := access.OpenUsers(file); err == nil {
		if all, err := users.List(); err == nil && len(all) == 0 {
			_ = os.Remove(file)
		}
	}
}

// roleOf returns the role of a user, or the role of a new user if the user does not exist.
func roleOf(users *access.Users, name string) (access.Role, error) {
	all, err := users.List()
	if err != nil {
		return "", err
	}
	for _, u := range all {
		if u.Name == name {
			return u.Role, nil
		}
	}
	return access.Viewer, nil
}

// password asks for a password without showing it, or reads a line of standard input that is no terminal.
func (a *app) password(name string) (string, error) {
	if in, ok := a.std.In.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		_, _ = fmt.Fprintf(a.std.Err, "password of %s: ", name)
		text, err := a.unseen(int(in.Fd()))
		_, _ = fmt.Fprintln(a.std.Err)
		return text, err
	}
	line, err := bufio.NewReader(a.input(a.std.In)).ReadString('\n')
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read the password: %w", err)
	case line == "": // more likely the failure of a program than a wish to keep the password
		return "", badInput("standard input is empty: want the password of %s, or an empty line to keep it", name)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// unseen reads a line without showing it. Afterwards the terminal shows its input again, also if the
// command is interrupted.
func (a *app) unseen(fd int) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() { // ends with the line, or with the process
		text, err := term.ReadPassword(fd)
		read <- line{text, err}
	}()
	select {
	case got := <-read:
		return string(got.text), got.err
	case <-a.ended:
		return "", errors.Join(context.Canceled, term.Restore(fd, before))
	}
}

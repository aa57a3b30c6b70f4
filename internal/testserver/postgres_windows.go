package testserver

import "os/exec"

// account is the user that a server runs as, which is always this process's own user.
type account struct{}

func unprivileged() (*account, error) { return nil, nil } //nolint:nilnil // no account is this process's own

func (*account) own(string) error { return nil }

func (*account) run(*exec.Cmd) {}

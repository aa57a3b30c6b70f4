package command

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

const limitsMemory = false

func executable() (string, error) { return os.Executable() }

// group makes the process the leader of a group of its own.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func become(string, []string, uint64) error { return errors.ErrUnsupported }

// killMarked finds nothing: macOS shows no environment of another process.
func killMarked(string, func(int64) bool) int { return 0 }

func oomKills() int { return 0 }

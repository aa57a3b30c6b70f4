//go:build !linux && !darwin

package command

import (
	"errors"
	"io"
	"os"
	"os/exec"
)

// Here only the parameters, the exit code and the standard error of a child are known.
const (
	hasReports   = false
	hasGroups    = false
	reaps        = false
	limitsMemory = false
)

func executable() (string, error) { return os.Executable() }

func ignoreSignals() {}

func apart(*exec.Cmd) {}

func group(*exec.Cmd) {}

func become(string, []string, uint64) error { return errors.ErrUnsupported }

func terminateGroup(leader *os.Process) { _ = leader.Kill() }

func killProcess(leader *os.Process) { _ = leader.Kill() }

func killGroup(int) {}

func awaitEnd(int) {}

func readNow(*os.File, []byte) (int, error) { return 0, io.EOF }

func signalled(*os.ProcessState) string { return "" }

func killMarked(string, func(int64) bool) int { return 0 }

func oomKills() int { return 0 }

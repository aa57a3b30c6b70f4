package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// TreeCPU returns the processor time that a process and its children have used, including
// children that have ended. The time of ended children is exact to a hundredth of a
// second.
func TreeCPU(pid int) (time.Duration, error) {
	used, err := CPU(pid)
	if err != nil {
		return 0, err
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		s, err := statOf(string(text))
		switch {
		case err != nil:
			return 0, fmt.Errorf("read %s: %w", file, err)
		case s.pid == pid:
			used += s.ended
		case s.parent == pid:
			if own, err := CPU(s.pid); err == nil { // an error means that it has ended
				used += own
			}
		}
	}
	return used, nil
}

// stat holds the fields of a process that TreeCPU needs.
type stat struct {
	pid, parent int
	ended       time.Duration // processor time of its children that have ended
}

// tick is the unit of time in the files of /proc.
const tick = time.Second / 100

// statOf parses a stat file of /proc. Its second field is a name in parentheses that may
// contain any character.
func statOf(text string) (s stat, err error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return s, fmt.Errorf("no name in %q", text)
	}
	fields := strings.Fields(text[end+1:])
	const parent, user, system = 1, 13, 14 // counted from the third field
	if len(fields) <= system {
		return s, fmt.Errorf("only %d fields in %q", len(fields), text)
	}
	number := func(text string) int {
		n, failed := strconv.Atoi(text)
		err = errors.Join(err, failed)
		return n
	}
	s.pid, s.parent = number(strings.TrimSpace(text[:open])), number(fields[parent])
	s.ended = time.Duration(number(fields[user])+number(fields[system])) * tick
	return s, err
}

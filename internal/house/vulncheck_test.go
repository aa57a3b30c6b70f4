package house

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unreachable is how govulncheck begins its error if it has no network.
const unreachable = "govulncheck: fetching vulnerabilities: no such host"

// TestVulncheckFailsForWhatItFound checks that vulncheck.sh fails if a vulnerability was
// found, and for every other failure except an unreachable database. In that case it must report that nothing
// was checked.
func TestVulncheckFailsForWhatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		code int
		want int
		line string
	}{
		"nothing found":    {"No vulnerabilities found.", 0, 0, "no known vulnerability is called"},
		"a vulnerability":  {"Vulnerability #1: GO-2026-0001", 3, 3, "GO-2026-0001"},
		"no network":       {unreachable, 1, 0, "NOTHING WAS CHECKED"},
		"another failure":  {"govulncheck: loading packages: syntax error", 1, 1, "syntax error"},
		"found, then lost": {unreachable, 3, 3, "no such host"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := vulncheck(t, fmt.Sprintf("echo '%s' >&2\nexit %d\n", c.says, c.code))
			if code != c.want || !strings.Contains(out, c.line) {
				t.Errorf("got code %d and %q, want %d and %q", code, out, c.want, c.line)
			}
		})
	}
}

// TestVulncheckChecksEachModule checks which of three modules vulncheck.sh checks. Each case is a script that
// stands for govulncheck and runs in the folder of a module.
func TestVulncheckChecksEachModule(t *testing.T) {
	lost := "echo '" + unreachable + "'; exit 1"
	for name, c := range map[string]struct {
		script string
		code   int
		last   string // the module with which the output ends
	}{
		"nothing found":      {"exit 0", 0, "c"},
		"no network":         {lost, 0, "a"},
		"the network breaks": {`[ "${PWD##*/}" != b ] || { ` + lost + "; }", 0, "c"},
		"the last fails":     {`[ "${PWD##*/}" != c ] || exit 3`, 3, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			var modules []string
			for _, module := range []string{"a", "b", "c"} {
				dir := filepath.Join(t.TempDir(), module)
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				modules = append(modules, dir)
			}
			code, out := vulncheck(t, c.script+"\n", modules...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if last := lines[len(lines)-1]; code != c.code || !strings.Contains(last, "/"+c.last+": ") {
				t.Errorf("got code %d and %q, want %d and an end with module %s", code, out, c.code, c.last)
			}
		})
	}
}

// vulncheck runs vulncheck.sh with a script instead of govulncheck, and returns its exit code and its output.
func vulncheck(t *testing.T, script string, modules ...string) (code int, out string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "govulncheck")
	if err := os.WriteFile(program, []byte("#!/usr/bin/env bash\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command("../../tools/vulncheck.sh", append([]string{program}, modules...)...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(text)
	} else if err != nil {
		t.Fatal(err)
	}
	return 0, string(text)
}

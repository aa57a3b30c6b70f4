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

// TestVulncheckFailsForWhatItFound checks that vulncheck.sh fails if a vulnerability was
// found, and for every other failure except an unreachable database. In that case it
// must say that nothing was checked.
func TestVulncheckFailsForWhatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		code int
		want int
		line string
	}{
		"nothing found":    {"No vulnerabilities found.", 0, 0, "no known vulnerability is called"},
		"a vulnerability":  {"Vulnerability #1: GO-2026-0001", 3, 3, "GO-2026-0001"},
		"no network":       {"govulncheck: fetching vulnerabilities: no such host", 1, 0, "NOTHING WAS CHECKED"},
		"another failure":  {"govulncheck: loading packages: syntax error", 1, 1, "syntax error"},
		"found, then lost": {"govulncheck: fetching vulnerabilities: no such host", 3, 3, "no such host"},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "govulncheck")
			script := fmt.Sprintf("#!/usr/bin/env bash\necho '%s' >&2\nexit %d\n", c.says, c.code)
			if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("../../tools/vulncheck.sh", program).CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.want || !strings.Contains(string(out), c.line) {
				t.Errorf("got code %d and %q, want %d and %q", code, out, c.want, c.line)
			}
		})
	}
}

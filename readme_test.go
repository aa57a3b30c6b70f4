package midge_test

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

// The program that a user copies from the README works, built in a separate module and run on a
// Redis.
func TestReadmeProgram(t *testing.T) {
	testserver.Require(t)
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindSubmatch(readme)
	if program == nil {
		t.Fatal("README.md has no Go program")
	}
	url := []byte("redis://localhost:6379")
	if !bytes.Contains(program[1], url) {
		t.Fatalf("the program of README.md does not name %s", url)
	}
	server := testserver.Redis(t)
	binary := buildOutside(t, bytes.Replace(program[1], url, []byte(server.URL()), 1))

	cmd := exec.Command(binary)
	output, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	welcomed := false
	for lines := bufio.NewScanner(output); lines.Scan(); {
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "welcome 42") {
			welcomed = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !welcomed {
		t.Errorf("the program ended with %v, welcomed %t, want nil and true", err, welcomed)
	}
}

// The follow-up in the README consists of lines of an example, which is tested.
func TestReadmeFollowUpIsAnExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("```go\n([^`]*midge\\.FollowUp\\(ctx[^`]*)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README.md shows no follow-up")
	}
	_, rest, _ := strings.Cut(string(examples), "func Example_followUp() {\n")
	for line := range strings.Lines(string(block[1])) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		_, behind, found := strings.Cut(rest, "\t"+line)
		if !found {
			t.Fatalf("%q is not in the example, or not in its order", line)
		}
		rest = behind
	}
}

// buildOutside builds a program in a module that requires midge from this directory.
func buildOutside(t *testing.T, program []byte) (binary string) {
	t.Helper()
	dir := outsideModule(t)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), program, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "mine")
	build := exec.Command("go", "build", "-mod=mod", "-o", binary, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program of README.md: %v\n%s", err, out)
	}
	return binary
}

// outsideModule makes a module that requires midge from this directory.
func outsideModule(t *testing.T) (dir string) {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	// The same module versions as here, so that nothing is downloaded.
	mod = bytes.Replace(mod, []byte("module github.com/midgehq/midge"), []byte("module example.com/mine"), 1)
	mod = append(mod, "\nrequire github.com/midgehq/midge v0.0.0\nreplace github.com/midgehq/midge => "+filepath.ToSlash(root)+"\n"...)
	dir = t.TempDir()
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

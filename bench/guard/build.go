package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// adapters holds, for each reference commit whose interface is not that of the working tree, the part of
// the benchmark that calls it, in a folder named after the commit. A file takes the place of the file of its
// name, and the file midge.go the place of all systems.
const adapters = "guard/adapters"

// builds are the programs of the sides, by commit. That of the working tree has the name tree.
type builds map[string]string

// tree is the name of the working tree.
const tree = "tree"

// build builds the program of the working tree and those of the commits, in the folder.
func build(ctx context.Context, folder string, commits []string) (builds, error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	bench := filepath.Join(root, "bench")
	programs := builds{tree: filepath.Join(folder, tree)}
	if _, err := output(ctx, bench, "go", "build", "-o", programs[tree], "."); err != nil {
		return nil, err
	}
	for _, commit := range commits {
		hash, err := output(ctx, root, "git", "rev-parse", "--verify", commit+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("find the reference, which takes a clone with the whole history: %w", err)
		}
		checkout := filepath.Join(folder, "at-"+hash)
		programs[commit] = filepath.Join(folder, hash)
		_, err = output(ctx, root, "git", "clone", "--quiet", "--shared", "--no-checkout", root, checkout)
		if err != nil {
			return nil, err
		}
		if _, err := output(ctx, checkout, "git", "checkout", "--quiet", hash); err != nil {
			return nil, err
		}
		dir := filepath.Join(checkout, "bench")
		if err := transplant(bench, dir, commit); err != nil {
			return nil, err
		}
		if _, err := output(ctx, dir, "go", "build", "-o", programs[commit], "."); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// transplant replaces the benchmark of a commit by that of the working tree, so that the same program
// measures both. If the adapter of the commit takes the place of all systems, the list of modules is the
// commit's, and midge is the only system.
func transplant(from, to, commit string) error {
	adapter := filepath.Join(from, filepath.FromSlash(adapters), commit)
	_, err := os.Stat(filepath.Join(adapter, "midge.go.txt"))
	whole := err == nil
	kept := make(map[string][]byte)
	if whole {
		for _, name := range []string{"go.mod", "go.sum"} {
			if kept[name], err = os.ReadFile(filepath.Join(to, name)); err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	for name, content := range kept {
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	if _, err := os.Stat(adapter); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return adapt(adapter, filepath.Join(to, "internal", "system"), whole)
}

// adapt adds the adapter's files, whose names end in .txt, to the systems. If the adapter takes the place of
// the whole, it leaves of the systems only the declarations that all share.
func adapt(adapter, systems string, whole bool) (err error) {
	if whole {
		err = each(systems, func(name string) error {
			if name == "system.go" {
				return nil
			}
			return os.Remove(filepath.Join(systems, name))
		})
	}
	return errors.Join(err, each(adapter, func(name string) error {
		content, err := os.ReadFile(filepath.Join(adapter, name))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(systems, strings.TrimSuffix(name, ".txt")), content, 0o600)
	}))
}

// each calls do with the name of each file in a folder.
func each(folder string, do func(name string) error) error {
	files, err := fs.ReadDir(os.DirFS(folder), ".")
	for _, f := range files {
		err = errors.Join(err, do(f.Name()))
	}
	return err
}

// output runs a command in a folder and returns what it wrote, without the last line's end. The error holds
// what the command wrote to standard error.
func output(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = folder
	text, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return strings.TrimSuffix(string(text), "\n"), err
}

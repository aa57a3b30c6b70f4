package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// bullBoard has the program that runs BullMQ and bull-board, and the list of the packages that it needs.
//
//go:embed bullboard
var bullBoard embed.FS

func serveBullBoard(ctx context.Context, all *stack, addr string, rows []row) (peer, error) {
	dir, err := install(ctx)
	if err != nil {
		return peer{}, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return peer{}, err
	}
	filled, err := json.Marshal(rows)
	if err != nil {
		return peer{}, err
	}
	planned, err := json.Marshal(schedules)
	if err != nil {
		return peer{}, err
	}
	args := []string{"main.js", port, string(filled), string(planned)}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "node", args...) //nolint:gosec // they are made here
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return peer{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return peer{}, err
	}
	if err := cmd.Start(); err != nil {
		return peer{}, err
	}
	all.add(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	var said struct{ URL, Example string }
	if err := json.NewDecoder(out).Decode(&said); err != nil {
		return peer{}, fmt.Errorf("bull-board says nothing: %w", err)
	}
	return peer{URL: said.URL, Pages: map[string]string{
		"overview": "/", "queues": "/queue/mail", "tasks": "/queue/mail?status=waiting",
		"task": "/queue/mail/" + said.Example, "dead": "/queue/mail?status=failed", "schedules": "/job-schedulers",
	}}, nil
}

// install writes the program into the user's cache, and lets npm download its packages there. It returns the
// folder.
func install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "midge-peers", "bullboard")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "main.js"} {
		text, err := bullBoard.ReadFile("bullboard/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--no-package-lock",
		"--ignore-scripts", "--prefer-offline", "--loglevel=error")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, text)
	}
	return dir, nil
}

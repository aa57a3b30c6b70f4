//go:build !unix

package main

import "os/exec"

// ownGroup does nothing: when the context ends, only the child itself is killed.
func ownGroup(*exec.Cmd) {}

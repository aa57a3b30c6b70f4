package testserver

import (
	"errors"
	"os/exec"
)

// tieToParent does nothing: no redis-server exists for Windows.
func tieToParent(*exec.Cmd) {}

// watchParent does nothing, for the same reason as tieToParent.
func watchParent(int) (release func()) { return func() {} }

var errWindows = errors.New("not on Windows")

func (p *process) terminate() error { return p.os.Kill() }
func (p *process) pause() error     { return errWindows }
func (p *process) resume() error    { return errWindows }

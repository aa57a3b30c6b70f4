//go:build unix

package testserver

import "syscall"

func (p *process) terminate() error { return p.os.Signal(syscall.SIGTERM) }
func (p *process) pause() error     { return p.os.Signal(syscall.SIGSTOP) }
func (p *process) resume() error    { return p.os.Signal(syscall.SIGCONT) }

package testserver

import (
	"bytes"
	"strings"
	"sync"
)

// Fault is an action of a Proxy on the commands that match it.
type Fault struct {
	match func(request []byte) bool
	kind  faultKind

	mu   sync.Mutex
	left int // number of commands still to match; -1 means every command
	open int // number of commands still to strike until struck is closed

	struck   chan struct{}
	released chan struct{}
}

type faultKind int

const (
	cutBefore faultKind = iota
	cutAfter
	holdRequest
	holdReply
)

// CutAfterRequest loses replies. Each of the next n commands that match is forwarded and
// executed. When its reply arrives, both sides of the connection are closed before any
// byte of that reply is delivered. Replies to earlier commands of a pipeline are
// delivered. A negative n concerns every command that matches, until [Fault.Release].
//
// match receives a whole command of Redis as it is on the wire, or the SQL of a command
// of PostgreSQL. The connections' goroutines call it concurrently. It must neither keep
// nor change the bytes. [Command] and [Containing] return such functions.
func (p *Proxy) CutAfterRequest(match func(request []byte) bool, n int) *Fault {
	return p.add(cutAfter, match, n)
}

// CutBeforeRequest loses requests: for each of the next n commands that match, both sides
// of its connection are closed and the server never sees the command. Earlier commands of
// a pipeline are forwarded, but their replies may be lost too. A negative n has the same
// meaning as for CutAfterRequest.
func (p *Proxy) CutBeforeRequest(match func(request []byte) bool, n int) *Fault {
	return p.add(cutBefore, match, n)
}

// Hold keeps every command that matches from the server until [Fault.Release], and also
// everything that the same connection sends after it.
func (p *Proxy) Hold(match func(request []byte) bool) *Fault {
	return p.add(holdRequest, match, -1)
}

// HoldReply lets every command that matches be executed, but keeps its reply from the
// client until [Fault.Release], and also everything that the same connection receives
// after it.
func (p *Proxy) HoldReply(match func(request []byte) bool) *Fault {
	return p.add(holdReply, match, -1)
}

// Struck returns a channel that is closed when the fault has struck all n commands of a
// cut, or the first command of a hold.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// Release ends the fault: held commands and replies are sent on, and no further command
// matches. Releasing again is harmless.
func (f *Fault) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	select {
	case <-f.released:
	default:
		close(f.released)
	}
}

// Command returns a function that matches the commands of Redis with one of these names,
// in upper or lower case, such as Command("EVALSHA", "EVAL").
func Command(names ...string) func(request []byte) bool {
	return func(request []byte) bool {
		got := command(request)
		for _, name := range names {
			if strings.EqualFold(got, name) {
				return true
			}
		}
		return false
	}
}

// Containing returns a function that matches the commands that contain a text anywhere,
// such as a key or the name of a function.
func Containing(text string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

func (p *Proxy) add(kind faultKind, match func([]byte) bool, n int) *Fault {
	f := &Fault{
		match: match, kind: kind, left: n, open: max(n, 1),
		struck: make(chan struct{}), released: make(chan struct{}),
	}
	if n == 0 {
		close(f.struck)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// faultOf returns the fault that strikes a command, or nil.
func (p *Proxy) faultOf(request []byte) *Fault {
	p.mu.Lock()
	faults := p.faults // append-only
	p.mu.Unlock()
	for _, f := range faults {
		if f.takes(request) {
			return f
		}
	}
	return nil
}

// takes reports whether the fault strikes the command, and counts the command if so.
func (f *Fault) takes(request []byte) bool {
	if !f.match(request) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return false
	}
	if f.left > 0 {
		f.left--
	}
	return true
}

// strike records that the fault has struck one command.
func (f *Fault) strike() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open--; f.open == 0 {
		close(f.struck)
	}
}

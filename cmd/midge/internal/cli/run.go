// Package cli is the commands of midge: what they are called, what they take, in which words they
// answer, and with which code they exit. A noun has a file: queue.go, task.go, and so on.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
)

// The codes with which a command exits.
const (
	Done        = 0
	Failed      = 1   // it was tried and failed, or doctor found something
	BadInput    = 2   // nothing was sent
	NotFound    = 3   // there is no such task, queue or schedule
	Refused     = 4   // the storage refused, and changed nothing
	Partly      = 5   // some of it was done
	Unknown     = 6   // it may have happened or not
	Unreachable = 7   // the storage cannot be reached
	TimedOut    = 124 // --timeout was over
	Interrupted = 130 // by the user
)

// Std is what a command has of its process.
type Std struct {
	In       io.Reader
	Out, Err io.Writer
	// User is who gave the command, as the audit knows him: "ann@host".
	User string
	// Env reads a variable of the environment.
	Env func(name string) string
	// Person says that somebody reads Err.
	Person bool
	// Ask opens where somebody can be asked, and fails where nobody can be.
	Ask func() (Dialog, error)
	// Terminal says that Out is a terminal, of a number of columns.
	Terminal bool
	Width    int
	// Open opens a storage, in the place of Target.Open; nil outside of tests.
	Open func(ctx context.Context, target connect.Target) (storage.Storage, error)
}

// Dialog is where somebody is asked: questions go to Out, and answers come from In.
type Dialog struct {
	In    io.Reader
	Out   io.Writer
	Close func() error
}

// Process is that of this process.
func Process() Std {
	std := Std{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv, Ask: dialog}
	out := int(os.Stdout.Fd())
	std.Terminal = term.IsTerminal(out)
	std.Person = term.IsTerminal(int(os.Stderr.Fd()))
	if width, _, err := term.GetSize(out); err == nil {
		std.Width = width
	}
	std.User = account()
	return std
}

// dialog asks on standard input and standard error, or where one of them is no terminal, on the terminal of
// this process.
func dialog() (Dialog, error) {
	if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
		return Dialog{In: os.Stdin, Out: os.Stderr, Close: func() error { return nil }}, nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return Dialog{}, err
	}
	return Dialog{In: tty, Out: tty, Close: tty.Close}, nil
}

// account is the user of this process and its host, as far as they are known.
func account() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// Run runs one command and gives the code with which the process is to exit.
func Run(ctx context.Context, args []string, std Std) int {
	a := &app{std: std, ended: ctx.Done()}
	root := a.root()                          //nolint:contextcheck // each command takes the context of its run
	root.SetArgs(append([]string{}, args...)) // none is not nil, which means those of the process
	err := root.ExecuteContext(ctx)
	a.close()
	code := a.codeOf(ctx, err)
	if text := a.explain(err, code); text != "" {
		_, _ = fmt.Fprintln(std.Err, "midge: "+text)
	}
	return code
}

// exitError ends a command with a code.
type exitError struct {
	code int
	text string // "" where all was said
	next string // the command to type next, "" for none
}

func (e *exitError) Error() string { return e.text }

// badInput is an error of the command line.
func badInput(format string, args ...any) error {
	return &exitError{code: BadInput, text: fmt.Sprintf(format, args...)}
}

// notFound says that something is not there, and what shows what is.
func notFound(next, format string, args ...any) error {
	return &exitError{code: NotFound, text: fmt.Sprintf(format, args...), next: next}
}

// codeOf gives the code for an error.
func (a *app) codeOf(ctx context.Context, err error) int {
	var exit *exitError
	var invalid *storage.InvalidError
	var dependency *storage.DependencyError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &exit):
		return exit.code
	case errors.Is(err, storage.ErrUnknown) && a.writing:
		return Unknown
	case ctx.Err() != nil:
		return Interrupted
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTimeout):
		return TimedOut
	case errors.As(err, &invalid), errors.As(err, new(*connect.NoStorageError)), cobraMeans(err):
		return BadInput
	case errors.Is(err, storage.ErrNotFound):
		return NotFound
	case errors.As(err, &dependency), errors.Is(err, storage.ErrRefused), errors.Is(err, storage.ErrNotEmpty),
		errors.Is(err, storage.ErrFull), errors.Is(err, storage.ErrSpan), errors.Is(err, storage.ErrLeaseLost):
		return Refused
	case errors.Is(err, storage.ErrUnavailable), errors.Is(err, storage.ErrUnknown):
		return Unreachable
	}
	return Failed
}

// cobraMeans reports whether an error is cobra's own, of a line that it cannot read.
func cobraMeans(err error) bool {
	text := err.Error()
	for _, begin := range []string{
		"unknown command", "unknown flag", "unknown shorthand", "invalid argument",
		"flag needs", "if any flags",
	} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return false
}

// explain says what an error means, and what to type next.
func (a *app) explain(err error, code int) string {
	if err == nil {
		return ""
	}
	text, next := inWords(err), ""
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		text, next = exit.text, exit.next
	case code == Unknown:
		text = "the outcome is unknown: " + text
		next = a.again
	case code == Interrupted:
		text = interrupted
	case code == TimedOut:
		text = timedOut + ": " + text
	case code == Unreachable:
		text = "the storage " + a.target.Address() + " cannot be reached: " + text
		next = "look whether it runs and whether " + a.target.From + " names it"
	case strings.Contains(text, "call postgres.Migrate"):
		next = "midge migrate"
	}
	if text == "" {
		return ""
	}
	text = show.Lines(text)
	if next != "" {
		text += "\nnext: " + next
	}
	return text
}

// What a command says that did not come to its end.
const (
	interrupted = "interrupted"
	timedOut    = "the time of --timeout was over"
)

// ended says why an act that was done in part did not come to its end.
func ended(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errTimeout):
		return timedOut
	}
	return inWords(err)
}

// usage makes the error of an argument that is wrong tell how the command is used.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &exitError{
		code: BadInput, text: fmt.Sprintf(format, args...) + "\nusage: " +
			cmd.UseLine(), next: cmd.CommandPath() + " --help",
	}
}

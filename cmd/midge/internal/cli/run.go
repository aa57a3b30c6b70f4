// Package cli implements the commands of midge: their names, arguments, messages and exit codes. Each noun
// has a file: queue.go, task.go, and so on.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/work/command"
)

// The exit codes of a command.
const (
	Done        = 0
	Failed      = 1   // the command failed, the user said no, or doctor found a problem
	BadInput    = 2   // the input is wrong; the storage was not changed
	NotFound    = 3   // the task, queue, runner, schedule or user does not exist
	Refused     = 4   // the storage refused, and changed nothing
	Partly      = 5   // only a part was done, and the command was not stopped
	Unknown     = 6   // the outcome is unknown: the change may have happened or not
	Unreachable = 7   // the storage cannot be reached
	TimedOut    = 124 // the time of --timeout ran out
	Interrupted = 130 // the user interrupted the command
)

// Std is the part of a process that a command uses.
type Std struct {
	In       io.Reader
	Out, Err io.Writer
	// User is the person who gave the command, by the name that the audit records: "ann@host".
	User string
	// Env returns a variable of the environment.
	Env func(name string) string
	// Person is set if a person reads Err.
	Person bool
	// Ask opens a dialog with the user. It fails if there is nobody to ask.
	Ask func() (Dialog, error)
	// Terminal is set if Out is a terminal. Width is its width in columns.
	Terminal bool
	Width    int
	// Reaper kills the programs of work after the death of this process.
	Reaper *command.Reaper
	// Post replaces the post to a webhook in tests; nil otherwise.
	Post func(ctx context.Context, body []byte) error
	// Open replaces Target.Open in tests; nil otherwise.
	Open func(ctx context.Context, target connect.Target) (storage.Storage, error)
}

// Dialog is a dialog with the user: questions go to Out, and answers come from In.
type Dialog struct {
	In    io.Reader
	Out   io.Writer
	Close func() error
}

// Process returns the Std of this process.
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

// dialog opens standard input and standard error, or, if one of them is no terminal, the terminal of this
// process.
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

// account returns the user and the host of this process, "unknown" for a part that is not known.
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

// Run runs one command and returns the exit code for the process.
func Run(ctx context.Context, args []string, std Std) int {
	a := &app{std: std, args: args, ended: ctx.Done()}
	root := a.root()                          //nolint:contextcheck // each command takes the context of its run
	root.SetArgs(append([]string{}, args...)) // not nil, which would mean the arguments of the process
	err := root.ExecuteContext(ctx)
	a.close()
	code := a.codeOf(ctx, err)
	if text := a.explain(err, code); text != "" {
		_, _ = fmt.Fprintln(std.Err, "midge: "+text)
	}
	return code
}

// exitError ends a command with an exit code.
type exitError struct {
	code int
	text string // "" if the output shows everything
	next string // the command to type next, "" for none
}

func (e *exitError) Error() string { return e.text }

// badInput returns the error for a wrong command line.
func badInput(format string, args ...any) error {
	return &exitError{code: BadInput, text: fmt.Sprintf(format, args...)}
}

// notFound returns the error for something that does not exist. next is a command that shows what exists.
func notFound(next, format string, args ...any) error {
	return &exitError{code: NotFound, text: fmt.Sprintf(format, args...), next: next}
}

// codeOf returns the exit code for an error.
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

// cobraMeans reports whether an error is from cobra, about a command line that cobra cannot parse.
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

// explain returns the message for an error, with the command to type next. It is "" if there is nothing more
// to report.
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
		if a.brief {
			next = "check whether " + a.target.Address() + " answers, or give it longer by --timeout"
		}
	case errors.Is(err, storage.ErrFull):
		next = "midge doctor"
	case strings.Contains(text, "as Config.DB"):
		next = "if a program keeps its tasks in this database, by Config.DB, use the dashboard of that program"
	case code == Unreachable:
		text = "the storage " + a.target.Address() + " cannot be reached: " + a.unreached(err)
		next = "check whether it runs and whether " + a.target.From + " names it"
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

// unreached returns why the storage cannot be reached. It leaves out the address of the only host of the
// storage, because the message names the storage.
func (a *app) unreached(err error) string {
	var name *net.DNSError
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case strings.Contains(a.target.Address(), ","): // several hosts
	case errors.As(err, &name):
		return name.Err
	case errors.As(err, &op) && errors.As(op.Err, &call):
		return call.Err.Error()
	case errors.As(err, &op) && op.Err != nil:
		return op.Err.Error()
	}
	return inWords(err)
}

// The messages of a command that did not finish.
const (
	interrupted = "interrupted"
	timedOut    = "the time of --timeout was over"
)

// stopped returns the exit code of a command whose context has ended, and 0 if it has not ended.
func stopped(ctx context.Context) int {
	switch {
	case ctx.Err() == nil:
		return 0
	case errors.Is(context.Cause(ctx), errTimeout):
		return TimedOut
	}
	return Interrupted
}

// partial returns the error of an action that err has ended. told names the part of it that was done.
func (a *app) partial(ctx context.Context, told string, err error) error {
	if errors.Is(err, storage.ErrUnknown) { // the message for it describes how to find the outcome
		return fmt.Errorf("%s, then: %w", told, err)
	}
	code, why := Partly, inWords(err)
	switch stopped(ctx) {
	case Interrupted:
		code, why = Interrupted, interrupted
	case TimedOut:
		code, why = TimedOut, timedOut
	}
	return &exitError{code: code, text: told + ", then: " + why, next: a.again}
}

// usage returns the error for a wrong argument, with the usage of the command.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &exitError{
		code: BadInput, text: fmt.Sprintf(format, args...) + "\nusage: " +
			cmd.UseLine(), next: cmd.CommandPath() + " --help",
	}
}

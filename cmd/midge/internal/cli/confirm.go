package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// typeAbove is the number of tasks above which an action needs a typed word, and not only "y".
const typeAbove = 1000

// confirm asks the user to confirm the action that the notes have described. If it changes more than
// typeAbove tasks, the user has to type word. yes is the flag --yes, which skips the question. Without a
// confirmation, confirm returns an error.
func (a *app) confirm(yes bool, question string, tasks int64, word string) error {
	if yes {
		return nil
	}
	asked, err := a.ask()
	if err != nil {
		return badInput("nobody is here to confirm this: give --yes (and --dry-run to see what would happen)")
	}
	defer func() { _ = asked.Close() }()
	prompt, wants := question+" [y/N] ", []string{"y", "yes"}
	if tasks > typeAbove {
		prompt, wants = fmt.Sprintf("%s Type %q to go on: ", question, word), []string{word}
	}
	_, _ = fmt.Fprint(asked.Out, prompt)
	line, err := bufio.NewReader(a.input(asked.In)).ReadString('\n')
	if errors.Is(err, context.Canceled) {
		_, _ = fmt.Fprintln(asked.Out)
		return err
	}
	answer := strings.TrimSpace(line)
	for _, want := range wants {
		if strings.EqualFold(answer, want) && (err == nil || answer != "") {
			return nil
		}
	}
	return &exitError{code: Failed, text: "nothing was changed"}
}

// ask opens a dialog with the user. It fails if there is nobody to ask.
func (a *app) ask() (Dialog, error) {
	if a.std.Ask == nil {
		return Dialog{}, os.ErrNotExist
	}
	return a.std.Ask()
}

// yesFlag adds --yes to a command that asks for a confirmation.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

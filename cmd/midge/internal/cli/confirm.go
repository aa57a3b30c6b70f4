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

// typeAbove is how many tasks an act may touch before a "y" is not enough.
const typeAbove = 1000

// confirm asks whether to go on with what the notes before it have told. Where more than typeAbove
// tasks are touched, word has to be typed. yes is the flag --yes, which answers.
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

// ask opens where somebody can be asked.
func (a *app) ask() (Dialog, error) {
	if a.std.Ask == nil {
		return Dialog{}, os.ErrNotExist
	}
	return a.std.Ask()
}

// yesFlag adds --yes to a command that asks.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

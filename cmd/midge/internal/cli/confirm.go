package cli

import (
	"bufio"
	"fmt"
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
	if !a.std.Person {
		return badInput("nobody is here to confirm this: give --yes (and --dry-run to see what would happen)")
	}
	prompt, wants := question+" [y/N] ", []string{"y", "yes"}
	if tasks > typeAbove {
		prompt, wants = fmt.Sprintf("%s Type %q to go on: ", question, word), []string{word}
	}
	_, _ = fmt.Fprint(a.std.Err, prompt)
	line, err := bufio.NewReader(a.std.In).ReadString('\n')
	answer := strings.TrimSpace(line)
	for _, want := range wants {
		if strings.EqualFold(answer, want) && (err == nil || answer != "") {
			return nil
		}
	}
	return &exitError{code: Failed, text: "nothing was changed"}
}

// yesFlag adds --yes to a command that asks.
func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "do not ask")
}

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/shell"
)

// root makes the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "midge",
		Short: "See and repair the tasks of a midge storage",
		Long: "midge shows and repairs tasks, queues, schedules and runners.\n\n" +
			"The first of these that is set names the storage: --storage, --profile,\n" +
			"MIDGE_STORAGE, MIDGE_PROFILE, the default profile of the configuration.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args)
			}
			return nil
		},
		RunE:                       a.quick(a.greet),
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(a.std.In)
	root.SetOut(a.std.Out)
	root.SetErr(a.std.Err)
	a.globals(root.PersistentFlags())
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.queue(), a.task(), a.schedule(), a.runner(), a.stats(), a.top(), a.doctor(),
		a.auditCommand(), a.history(), a.migrate(),
		a.imports(), a.load(), a.work(), a.callback(), a.serve(), a.user(),
		a.version())
	a.completions(root)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	return root
}

// noun makes a command that only groups other commands.
func noun(name, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, DisableFlagsInUseLine: true, Short: short, Aliases: aliases}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return noCommand(cmd, args)
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(verbs...)
	return cmd
}

// noCommand returns the error for an unknown command, which is the first of the arguments. The others stay
// behind the command that is proposed.
func noCommand(cmd *cobra.Command, args []string) error {
	word, next := args[0], cmd.CommandPath()+" --help"
	path := elsewhere(cmd.Root(), word)
	if near := cmd.SuggestionsFor(word); path == "" && len(near) > 0 {
		swapped := func(name string) bool { return letters(name) == letters(word) }
		path = cmd.CommandPath() + " " + near[max(0, slices.IndexFunc(near, swapped))]
	}
	if path != "" {
		next = strings.TrimSpace(path + " " + shell.Line(args[1:]...))
	}
	return &exitError{
		code: BadInput, text: fmt.Sprintf("%s has no command %q", cmd.CommandPath(), word),
		next: next,
	}
}

// letters returns the letters of a word in their order. Words with swapped letters have the same ones.
func letters(word string) string {
	sorted := []byte(word)
	slices.Sort(sorted)
	return string(sorted)
}

// elsewhere returns the path of a command with a name, such as "midge task requeue"; "" if there is none.
func elsewhere(among *cobra.Command, name string) string {
	for _, cmd := range among.Commands() {
		if cmd.Name() == name || cmd.HasAlias(name) {
			return cmd.CommandPath()
		}
		if path := elsewhere(cmd, name); path != "" {
			return path
		}
	}
	return ""
}

// noArguments accepts no arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

// wants accepts least to most arguments, or any number from least on if most is negative. what names the
// arguments for people.
func wants(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usage(cmd, "%s wants %s", cmd.CommandPath(), what)
		}
		if most >= 0 && len(args) > most {
			return usage(cmd, "unexpected argument %q: %s wants %s", args[most], cmd.CommandPath(), what)
		}
		return nil
	}
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this command", Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			revision := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = s.Value
					}
				}
			}
			p := a.printer(zeroTime)
			if err := p.Check(); err != nil {
				return err
			}
			if !p.People() {
				return p.Value(show.Version{
					Version: midge.Version, Go: runtime.Version(), Revision: revision,
					System: runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			return p.Line("midge %s, %s, %s/%s", midge.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}

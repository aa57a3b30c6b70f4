package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// completeTime bounds the calls of a completion to the storage, because the user waits for the next key.
const completeTime = 300 * time.Millisecond

// completer returns the possible words at a place of the command line.
type completer func(ctx context.Context) []string

// completions sets the completions of all commands and flags. A completion that needs the storage offers
// nothing if the storage does not answer in time. The shell completes names of files only for arguments and
// flags that take a file.
func (a *app) completions(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("output",
		a.completed(fixed(show.Formats)))
	_ = root.RegisterFlagCompletionFunc("profile", a.completed(func(context.Context) []string {
		names, _, _ := connect.Profiles(a.std.Env)
		return names
	}))
	root.InitDefaultCompletionCmd()
	for _, noun := range root.Commands() {
		if noun.Name() == "completion" {
			noun.Args, noun.RunE = nil, func(cmd *cobra.Command, args []string) error {
				if len(args) == 0 {
					return cmd.Help()
				}
				return storage.Invalid("shell", args[0], "bash, zsh, fish or powershell")
			}
			continue
		}
		for _, verb := range noun.Commands() {
			switch {
			case noun.Name() == "queue":
				verb.ValidArgsFunction = a.completed(a.queueNames)
			case noun.Name() == "runner" && verb.Name() == "show":
				verb.ValidArgsFunction = a.completed(a.runnerNames)
			case noun.Name() == "schedule" && verb.Name() != "ls":
				verb.ValidArgsFunction = a.completed(a.scheduleNames)
			case verb.Name() == "restore":
				verb.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
			case verb.Name() == "add":
				verb.ValidArgsFunction = a.completed(a.kindNames)
			case noun.Name() == "task":
				verb.ValidArgsFunction = a.completed(a.filterWords, fixedWords()...)
			default:
				verb.ValidArgsFunction = cobra.NoFileCompletions
			}
			a.completeFlags(verb)
		}
		a.completeFlags(noun)
		switch noun.Name() {
		case "work", "load": // a program, or a file
			noun.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		case "history", "stats":
			noun.ValidArgsFunction = a.completed(a.queueNames)
		case "doctor":
			_ = noun.RegisterFlagCompletionFunc("accept", a.completed(a.acceptable))
		}
	}
	noFiles(root)
}

// completeFlags sets the completions of the flags of a command that several commands have.
func (a *app) completeFlags(cmd *cobra.Command) {
	for flag, names := range map[string]completer{
		"queue": a.queueNames, "to": a.queueNames, "state": fixed(filter.StateWords), "kind": a.kindNames,
		"sort": fixed(sortKeys), "by": fixed(func() []string { return []string{"kind", "cause", "header."} }),
		"result": fixed(resultSources),
	} {
		if cmd.Flags().Lookup(flag) != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, a.completed(names))
		}
	}
}

// noFiles switches off the names of files, which a shell offers if a command has no completion of its own.
// They stay for flags whose value is a file.
func noFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	flags := func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); name != "file" {
			// an error means that the flag has a completion
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions)
		}
	}
	cmd.LocalFlags().VisitAll(flags)
	for _, below := range cmd.Commands() {
		noFiles(below)
	}
}

// completed makes a completion for cobra, of fixed words and of names. It fails silently, because a message
// would appear in the line that the user types. If the time is over, the names are left out: some of them
// would seem to be all.
func (a *app) completed(names completer, words ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		ctx, stop := context.WithTimeout(cmd.Context(), completeTime)
		defer stop()
		a.quiet = true
		found, all := make(chan []string, 1), words
		go func() { found <- names(ctx) }() // ends with the process if the storage ignores ctx
		select {
		case some := <-found:
			if ctx.Err() == nil {
				all = slices.Concat(words, some)
			}
		case <-ctx.Done():
		}
		all = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, begin) })
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) queueNames(ctx context.Context) (names []string) {
	if a.open(ctx) != nil {
		return nil
	}
	for name, err := range storage.EachQueue(ctx, a.store, "") {
		if err != nil {
			return nil
		}
		if !strings.HasPrefix(name, hidden) {
			names = append(names, name)
		}
	}
	return names
}

func (a *app) runnerNames(ctx context.Context) (names []string) {
	for _, r := range a.livingRunners(ctx) {
		names = append(names, r.ID)
	}
	return names
}

// kindNames returns the kinds that live runners know.
func (a *app) kindNames(ctx context.Context) (names []string) {
	for _, r := range a.livingRunners(ctx) {
		names = append(names, r.Kinds...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (a *app) livingRunners(ctx context.Context) []storage.RunnerInfo {
	if a.open(ctx) != nil {
		return nil
	}
	runners, err := a.store.Runners(ctx)
	if err != nil {
		return nil
	}
	return runners
}

func (a *app) scheduleNames(ctx context.Context) (names []string) {
	if a.open(ctx) != nil {
		return nil
	}
	plans, err := a.plans(ctx, nil)
	if err != nil {
		return nil
	}
	for _, s := range plans {
		names = append(names, s.ref())
	}
	return names
}

// fixedWords returns the words with which a filter may begin and that need no storage.
func fixedWords() []string {
	states := filter.StateWords()
	words := append(make([]string, 0, 2+len(states)), "error:", "age>")
	for _, state := range states {
		words = append(words, "state:"+state)
	}
	return words
}

// filterWords returns the words with which a filter may begin and that the storage knows.
func (a *app) filterWords(ctx context.Context) (words []string) {
	for _, kind := range a.kindNames(ctx) {
		words = append(words, "kind:"+kind)
	}
	for _, queue := range a.queueNames(ctx) {
		words = append(words, "queue:"+queue)
	}
	for _, g := range a.newestCauses(ctx) {
		words = append(words, cobra.CompletionWithDesc("cause:"+g.ID, g.LastError()))
	}
	return words
}

// mostCompleted is about how many dead tasks are read for the completion of causes.
const mostCompleted = 1000

// newestCauses returns the causes of death of the newest dead tasks, the most frequent first.
func (a *app) newestCauses(ctx context.Context) []scan.Group {
	if a.open(ctx) != nil {
		return nil
	}
	g := scan.NewGrouping(a.store, scan.Request{Tasks: mostCompleted, Time: -1})
	if _, err := g.Read(ctx); err != nil {
		return nil
	}
	return slices.DeleteFunc(g.Groups(), func(g scan.Group) bool { return g.ID == "" })
}

// acceptable returns the present findings that doctor can accept.
func (a *app) acceptable(ctx context.Context) (names []string) {
	if a.open(ctx) != nil {
		return nil
	}
	r, err := a.examine(ctx, survey.Bounds{Dead: survey.AnyNumber})
	if err != nil {
		return nil
	}
	for _, f := range r.Findings {
		if f.Accept != "" {
			names = append(names, f.Accept)
		}
	}
	return names
}

// sortKeys returns the keys by which queue ls sorts.
func sortKeys() []string { return append([]string{"name", "oldest"}, filter.StateWords()...) }

// fixed makes a completer of words that need no storage.
func fixed(of func() []string) completer { return func(context.Context) []string { return of() } }

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	oldest, lasts span
	dead          int64
	accept        []string
	hookFile      string
	watch         *span
}

func (f *doctorFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(&f.oldest, "max-oldest", "report a problem if a task waits longer than this time, such as 5m")
	flags.Int64Var(&f.dead, "max-dead", survey.AnyNumber,
		"report a problem if more than this number of tasks are dead")
	flags.StringArrayVar(&f.accept, "accept", nil,
		"a `finding` to accept, such as paused:reports; may be repeated")
	flags.Var(&f.lasts, "for", "report only what has lasted for this time, such as 2m")
	flags.StringVar(&f.hookFile, "webhook-file", "",
		"with --watch: post each change of the problems to the URL in this `file`")
	f.watch = watchFlag(cmd)
}

// checkup makes the checkup that the flags describe.
func (f *doctorFlags) checkup(a *app, changed func(flag string) bool) (*checkup, error) {
	switch {
	case changed("max-oldest") && f.oldest.Duration <= 0:
		return nil, storage.Invalid("--max-oldest", f.oldest.Duration, "more than 0, such as 5m")
	case changed("max-dead") && f.dead < 0:
		return nil, storage.Invalid("--max-dead", f.dead, "0 or more")
	case f.hookFile != "" && !changed("watch"):
		return nil, storage.Invalid("flags", "--webhook-file without --watch", "--watch with it")
	}
	for _, known := range f.accept {
		if err := survey.CheckAccepted("--accept", known); err != nil {
			return nil, err
		}
	}
	bounds := survey.Bounds{Oldest: f.oldest.Duration, Dead: f.dead, Accepted: f.accept}
	return &checkup{app: a, bounds: bounds, lasts: f.lasts.Duration}, nil
}

// doctorLong is the help of doctor.
var doctorLong = "doctor checks the storage, its queues, schedules and runners. It exits with 1\n" +
	"if it finds a problem, and with 0 if it does not. For a check by cron,\n" +
	"--max-oldest (by default 5m) and --max-dead (by default any number) set the\n" +
	"bounds beyond which it finds one, and\n" +
	"--quiet prints nothing if there is no problem.\n\n" +
	"With --for 2m, a finding counts only once it has lasted for two minutes: doctor\n" +
	"checks again until each problem has lasted so long or is over. With --watch it\n" +
	"checks until it is interrupted. On a terminal it shows each check, and else each\n" +
	"change. It also posts each change of the problems as JSON to a webhook, whose\n" +
	"URL is in the file of --webhook-file or in the variable MIDGE_WEBHOOK. The JSON\n" +
	"has no parameters and no errors of tasks. The URL has to begin with https://,\n" +
	"and its host must not be this machine.\n\n" +
	"If you know of a finding, accept it by --accept or by accept in the profile:\n" +
	survey.AcceptSyntax +
	"\nTasks that died of an accepted cause do not count for --max-dead."

func (a *app) doctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the storage; exit with 1 if it has a problem", Long: doctorLong,
		Example: "  midge doctor\n" +
			"  midge doctor --quiet --for 2m --max-dead 10 || mail -s 'midge' oncall\n" +
			"  midge doctor --watch=30s --for 2m --webhook-file /etc/midge/webhook\n" +
			"  midge doctor --accept paused:reports --accept cause:2qk3m1",
		Args: noArguments,
	}
	var f doctorFlags
	f.add(cmd)
	once := func(ctx context.Context, _ []string) error {
		c, err := f.checkup(a, cmd.Flags().Changed)
		if err != nil {
			return err
		}
		return a.diagnose(ctx, c)
	}
	either := a.either(f.watch, once, func(ctx context.Context, _ []string) error {
		c, err := f.checkup(a, cmd.Flags().Changed)
		if err != nil {
			return err
		}
		return a.watchDoctor(ctx, c, f.watch.Duration, f.hookFile)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.lasts.Duration > 0 && !cmd.Flags().Changed("watch") { // it takes as long as --for
			return a.long(once)(cmd, args)
		}
		return either(cmd, args)
	}
	return cmd
}

func (a *app) diagnose(ctx context.Context, c *checkup) error {
	r, err := c.settled(ctx)
	if err != nil {
		return err
	}
	if err := a.told(a.printer(r.Now), r); err != nil {
		return err
	}
	if r.Problems() > 0 {
		return &exitError{code: Failed} // the report shows everything
	}
	return nil
}

// told writes a report.
func (a *app) told(p *show.Printer, r *Report) error {
	switch {
	case !p.People():
		return p.Value(r)
	case !a.quiet || r.Problems() > 0: // cron mails whatever is printed
		return a.report(p, r)
	}
	return nil
}

// Report is the report of doctor. A storage that refuses to be opened or read has only findings.
type Report struct {
	Storage    string  `json:"storage"`
	Durability string  `json:"durability"`
	RoundTrip  float64 `json:"round_trip_seconds"`
	Queues     int     `json:"queues"`
	Runners    int     `json:"runners"`
	show.Live
	Dead     int64            `json:"dead"`
	Findings []survey.Finding `json:"findings"`
	// Accepted lists the findings that somebody knows of, and Recent the findings that have not lasted for the
	// time of --for yet. Findings contains neither.
	Accepted []survey.Finding `json:"accepted"`
	Recent   []survey.Finding `json:"recent"`
	// Now is the storage's time.
	Now time.Time `json:"now"`

	sum storage.Stats // over the queues
}

// Problems counts the findings that have to be repaired.
func (r *Report) Problems() int { return problems(r.Findings) }

func problems(among []survey.Finding) (n int) {
	for i := range among {
		if among[i].Level == survey.Problem {
			n++
		}
	}
	return n
}

// findingWords writes the numbers and times of findings.
var findingWords = survey.Words{Number: show.Number, Span: show.Span}

// examine examines the open storage. The findings that the profile accepts are accepted, too.
func (a *app) examine(ctx context.Context, bounds survey.Bounds) (*Report, error) {
	known, err := a.accepted()
	if err != nil {
		return nil, err
	}
	bounds.Accepted = append(bounds.Accepted, known...)
	s, err := survey.Once(ctx, a.store, bounds)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Storage: s.Info.Storage, Durability: s.Info.Durability, RoundTrip: s.RoundTrip.Seconds(),
		Queues: len(s.Queues), Runners: len(s.Runners), Now: s.Info.Now.UTC(), Recent: []survey.Finding{},
	}
	for i := range s.Queues {
		r.sum.Add(&s.Queues[i].Stats)
	}
	r.Live, r.Dead = show.LiveOf(&r.sum), r.sum.Dead
	r.Findings, r.Accepted = s.Findings(bounds, findingWords)
	survey.ProblemsFirst(r.Findings)
	survey.ProblemsFirst(r.Accepted)
	return r, nil
}

// accepted returns the findings that the profile accepts.
func (a *app) accepted() (names []string, err error) {
	for known := range strings.SplitSeq(a.target.Accept, "\n") {
		if known == "" {
			continue
		}
		if err := survey.CheckAccepted("accept of profile "+a.target.Profile, known); err != nil {
			return nil, err
		}
		names = append(names, known)
	}
	return names, nil
}

// report writes the report of a checkup for people.
func (a *app) report(p *show.Printer, r *Report) error {
	switch {
	case a.quiet:
	case r.Storage == "":
		if err := show.Fields(p, show.Field{Name: "storage", Text: a.target.String()}); err != nil {
			return err
		}
	default:
		err := show.Fields(p,
			show.Field{Name: "storage", Text: a.target.String() + " (" + show.Text(r.Storage) + ")"},
			show.Field{Name: "answers in", Text: fmt.Sprintf("%.1f ms", r.RoundTrip*1000)},
			show.Field{Name: "keeps", Text: show.Text(r.Durability)},
			show.Field{Name: "runners", Text: show.Number(int64(r.Runners))},
			show.Field{Name: "queues", Text: show.Number(int64(r.Queues))},
			show.Field{Name: "tasks", Text: sizes(&r.sum, filter.Outstanding())})
		if err != nil {
			return err
		}
	}
	return a.findings(p, r)
}

// findings writes the findings, or a line that there are none.
func (a *app) findings(p *show.Printer, r *Report) error {
	if len(r.Findings) == 0 && !a.quiet {
		if err := p.Line("\n%s", p.Paint("All clear.", show.Good)); err != nil {
			return err
		}
	}
	for i := range r.Findings {
		if i == 0 && !a.quiet {
			if err := p.Line(""); err != nil {
				return err
			}
		}
		if err := finding(p, &r.Findings[i], r.Now); err != nil {
			return err
		}
	}
	if a.quiet {
		return nil
	}
	for _, apart := range []struct {
		word     string
		findings []survey.Finding
	}{{"recent", r.Recent}, {"accepted", r.Accepted}} {
		for i := range apart.findings {
			line := apart.word + ": " + lineOf(&apart.findings[i], r.Now)
			if err := p.Line("%s", p.Paint(line, show.Faint)); err != nil {
				return err
			}
		}
	}
	return nil
}

// finding writes a finding, with the command to type next.
func finding(p *show.Printer, f *survey.Finding, now time.Time) error {
	style := show.Warn
	if f.Level == survey.Problem {
		style = show.Bad
	}
	text := strings.ReplaceAll(p.Wrapped(lineOf(f, now), 9), "\n", "\n         ")
	if err := p.Line("%s %s", p.Paint(fmt.Sprintf("%-8s", f.Level), style), text); err != nil || f.Next == "" {
		return err
	}
	return p.Line("         %s", p.Paint("next: "+f.Next, show.Faint))
}

// lineOf writes a finding in a line: what it is, how much of it there is, and since when.
func lineOf(f *survey.Finding, now time.Time) string {
	text := f.Text + "."
	if f.Detail != "" {
		text += " " + f.Detail
	}
	if f.Since != nil {
		text += " Since " + show.Span(max(now.Sub(*f.Since), 0)) + " ago."
	}
	return show.Text(text)
}

// greet is the command midge without arguments. It shows the state of the storage and what to type next.
func (a *app) greet(ctx context.Context, _ []string) error {
	if err := a.open(ctx); err != nil {
		return withWelcome(err, a)
	}
	r, err := a.examine(ctx, survey.Bounds{Dead: survey.AnyNumber})
	if err != nil {
		return err
	}
	p := a.printer(r.Now)
	if !p.People() {
		return p.Value(r)
	}
	if err := p.Line("%s on %s\n%s, %s, %s", p.Paint("midge", show.Strong), a.target,
		show.Count(int64(r.Queues), "queue"),
		show.Count(int64(r.Runners), "runner"), sizes(&r.sum, filter.Outstanding())); err != nil {
		return err
	}
	if err := a.findings(p, r); err != nil {
		return err
	}
	return p.Line("\n%s", next)
}

// next is the list of commands that greet shows.
const next = `midge queue ls            the queues and their sizes
midge task ls --by cause  the causes of death of the dead tasks
midge task why REF        why a task is not running
midge top                 the queues and tasks, live
midge doctor              the problems, with a repair for each
midge help                all commands`

// withWelcome adds to an error how to begin, if the user has not named a storage yet.
func withWelcome(err error, a *app) error {
	path, perr := connect.File(a.std.Env)
	if names, byDefault, _ := connect.Profiles(a.std.Env); perr == nil && a.target == (connect.Target{}) &&
		a.choice == (connect.Choice{}) {
		if len(names) > 0 && byDefault == "" {
			return &exitError{
				code: BadInput, text: fmt.Sprintf("no storage was named, and %s has these profiles: %v", path, names),
				next: "midge --profile " + names[0],
			}
		}
		if a.std.Env(connect.EnvStorage) == "" && len(names) == 0 {
			return &exitError{
				code: BadInput, text: err.Error(),
				next: "midge --storage redis://localhost:6379   (or midge help)",
			}
		}
	}
	return err
}

package dashboard

import (
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/shell"
	"github.com/midgehq/midge/internal/survey"
)

// A page shows the command line that prints the same data.

// commandLine joins words to a command line for a shell, "" if no shell can pass them to a command.
func commandLine(words ...string) string { return shell.Line(words...) }

// behind appends an argument to flags, unless it is empty. It puts "--" before an argument that begins like a
// flag.
func behind(words []string, argument string) []string {
	switch {
	case argument == "":
		return words
	case argument[0] == '-':
		words = append(words, "--")
	}
	return append(words, argument)
}

// alien reports whether a filter names a cause under an id that the command may not know: the id is that of
// an error without its hidden values, which the command does not hide. An id of the whole error would confirm
// guesses of them. The sample knows which causes have the same id everywhere, unless their errors were cut.
func (v *view) alien(c *chosen) bool {
	if c == nil || v.server.cfg.Redact == nil || !strings.Contains(c.Filter, "cause:") {
		return false
	}
	return v.Sample == nil || v.Sample.Dead == nil ||
		!slices.ContainsFunc(v.Sample.Dead.Groups, func(g *survey.Cause) bool {
			return strings.Contains(c.Filter, g.ID) && len(g.Error) < survey.MostError-len("€") &&
				!strings.Contains(fingerprint.Text(g.Error), access.Hidden)
		})
}

// listCommand returns the command line for a page of a list of tasks, "" for an alien filter.
func (v *view) listCommand(c chosen, after string) string {
	if v.alien(&c) {
		return ""
	}
	words, text := []string{"midge", "task", "ls"}, c.Text()
	if after != "" {
		words = append(words, "--after", after)
	}
	if after != "" && c.plain() { // the cursor belongs to a request that has no filter, see chosen.request
		text = ""
		if c.Queue != "" {
			words = append(words, "--queue", c.Queue)
		}
		if c.State != "" {
			words = append(words, "--state", c.State)
		}
	}
	return commandLine(behind(words, text)...)
}

// queuesCommand returns the command line for a page of the list of queues. The command knows neither rates
// nor trouble. For a page that is ordered by one of these, the line lists the queues of all pages.
func queuesCommand(d *queuesData) string {
	words := []string{"midge", "queue", "ls"}
	if d.Filter != "" {
		words = append(words, "--contains="+d.Filter)
	}
	if by := d.Order.By; by != "" && by != "done" {
		if by != "name" {
			words = append(words, "--sort", by)
		}
		if d.Page.Of > pageSize {
			words = append(words, "--limit", strconv.Itoa(pageSize))
		}
		if d.Page.From > 1 {
			words = append(words, "--skip", strconv.Itoa(d.Page.From-1))
		}
	}
	return commandLine(words...)
}

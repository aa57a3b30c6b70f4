package dashboard

import (
	"strconv"

	"github.com/midgehq/midge/internal/shell"
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

// listCommand returns the command line for a page of a list of tasks.
func listCommand(c chosen, after string) string {
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

package dashboard

import (
	"slices"
	"strconv"
	"strings"
)

// A page shows the line of the command that tells the same: a shell splits it into words as they were put
// together here, and the command writes the rows of the page.

// commandLine writes words as a line of a shell, "" where there is none: no shell hands a NUL over.
func commandLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if strings.ContainsRune(w, 0) {
			return ""
		}
		quoted[i] = shellQuoted(w)
	}
	return strings.Join(quoted, " ")
}

// behind puts an argument behind flags: one that begins like a flag stands behind "--".
func behind(words []string, argument string) []string {
	switch {
	case argument == "":
		return words
	case argument[0] == '-':
		words = append(words, "--")
	}
	return append(words, argument)
}

// listCommand is the line for a page of a list of tasks.
func listCommand(c chosen, after string) string {
	words, text := []string{"midge", "task", "ls"}, c.Text()
	if after != "" {
		words = append(words, "--after", after)
	}
	if after != "" && c.plain() { // as the request is made to which the cursor belongs
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

// queuesCommand is the line for a page of the list of queues. The command knows no rates and no trouble, and
// lists the queues of all pages where they are ordered by those.
func queuesCommand(d *queuesData) string {
	words := []string{"midge", "queue", "ls"}
	if d.Filter != "" {
		words = append(words, "--contains="+d.Filter)
	}
	if d.Sort != "" && d.Sort != "done" {
		if d.Sort != "name" {
			words = append(words, "--sort", d.Sort)
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

// shellQuoted writes a text as one word of a shell.
func shellQuoted(text string) string {
	unsafe := func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		return !letter && (c < '0' || c > '9') && !strings.ContainsRune("_-.:/,+@%=", c)
	}
	// Some shells read a word that begins with = as the path of a command.
	if text != "" && text[0] != '=' && !slices.ContainsFunc([]rune(text), unsafe) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

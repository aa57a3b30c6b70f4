package scan

import (
	"regexp"
	"slices"
	"strings"

	"github.com/midgehq/midge/storage"
)

// The forms in which a text names a task.
var (
	queueWord = regexp.MustCompile(`\bqueue"?\s*[=:]\s*"?([A-Za-z0-9][A-Za-z0-9_.:-]*)`)
	taskWord  = regexp.MustCompile(`\b(?:task|id)"?\s*[=:]\s*"?([A-Za-z0-9][A-Za-z0-9_.:-]*)`)
	refWord   = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.:-]*(?:/[A-Za-z0-9][A-Za-z0-9_.:-]*)+`)
	idWord    = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.:-]{7,}`)
)

// mostMentioned bounds the refs and the ids that are read in a text.
const mostMentioned = 40

// Mentioned returns the refs and the ids of tasks that a text names. The text is a ref, an id, or a line of a
// log. The first ref is the whole text, if it is a ref. Then come the refs from the name behind "queue" and
// each name behind "task" or "id", and then each "queue/id" in the text. The ids are names without a queue:
// the whole text, each name behind "task" or "id", and then each word of at least eight characters with a
// digit. No ref and no id comes twice. The tasks need not exist.
func Mentioned(text string) (refs []storage.Ref, ids []string) {
	text = strings.TrimSpace(text)
	ref := func(queue, id string) {
		r := storage.Ref{Queue: queue, ID: id}
		if len(refs) < mostMentioned && storage.CheckRef(r) == nil && !slices.Contains(refs, r) {
			refs = append(refs, r)
		}
	}
	id := func(text string) {
		if len(ids) < mostMentioned && storage.CheckName("id", text) == nil && !slices.Contains(ids, text) {
			ids = append(ids, text)
		}
	}
	id(text)
	if queue, name, ok := strings.Cut(text, "/"); ok { // a ref may have names that resemble words of a log
		ref(queue, name)
	}
	queues, tasks := queueWord.FindStringSubmatch(text), taskWord.FindAllStringSubmatch(text, mostMentioned)
	for _, t := range tasks {
		if queues != nil {
			ref(queues[1], t[1])
		}
		id(t[1])
	}
	for _, word := range refWord.FindAllString(text, mostMentioned) {
		names := strings.Split(word, "/")
		for i := len(names) - 1; i > 0; i-- { // in a URL, the ref comes last
			ref(names[i-1], names[i])
		}
	}
	for _, word := range idWord.FindAllString(text, mostMentioned) {
		if strings.ContainsAny(word, "0123456789") {
			id(word)
		}
	}
	return refs, ids
}

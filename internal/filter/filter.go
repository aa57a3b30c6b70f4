// Package filter is the one language in which the command and the dashboard choose tasks.
//
// A filter is words with white space between them, and a task has to match all of them:
//
//	kind:send_* retries>3 age>1h error:"timed out" header.tenant:acme params.user.id:42 -reason:"crash loop"
//
// A word is a field, an operator and a value. A "-" before it chooses the tasks that do not match it. A
// value in double quotes may have white space; within quotes \" is a quote, \\ a backslash, and "*" means
// itself. A "*" outside of quotes stands for any text. A task matches several values with commas between
// them if it matches one of them. A word without an operator is searched for in the ref, the kind and the last
// error.
//
// # Fields
//
//	queue: id: kind: runner: encoding:   the whole name; runner is who runs the task, or ran it last
//	partition:                           the whole key; partition:"" for the tasks without a partition
//	state:                               waiting running scheduled retry completed cancelled dead cursor,
//	                                     or live, ended, all; pending is the same as running
//	error: reason:                       a part of the last error, or of the reason; case does not matter;
//	                                     error:"" for the tasks without an error
//	cause:                               the id of a cause; tasks have the same cause if their errors differ only
//	                                     in numbers, ids, addresses, moments and quoted values
//	header.NAME:                         the whole value of a header; header.NAME:* if the task has the header
//	params.PATH:                         the value of a parameter; each step of the path is a field or the number
//	                                     of an element, and a list matches if one of its elements does; bytes
//	                                     match only "*"
//	is:                                  declined suspect start-only (waiting tasks), cancel-asked started ahead
//	                                     (running tasks; ahead: claimed, not started), unique (with a unique key)
//	priority retries crashes snoozes     numbers: retries>3 crashes:0 priority<=-1
//	cost attempts size                   the cost of a start, the attempts in the history, and the bytes of the
//	                                     parameters
//	age                                  since the creation: age>1h age<2d12h
//	created started declined ended       moments that have passed: ended<1h is less than an hour ago, and
//	                                     created>2026-11-23 after the start of that day (UTC)
//	due expires                          moments to come: due<10m is in less than ten minutes
//
// The operators are ":" (equal, or within a day), ">", "<", ">=" and "<=". Texts take only ":". Parameters
// that are numbers or moments take all of them. A duration has its unit: ms, s, m, h, d or w. A moment is a
// duration from now, a day such as 2026-11-23, or RFC 3339; "due:yes" and "due:no" ask whether there is one.
// A parameter is a moment also if it is a text such as "2026-11-23" or RFC 3339, in UTC unless it has an
// offset. It is not compared with a duration, because it may lie ahead or behind.
package filter

import (
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// Syntax is a summary of the language, for the help of a command.
var Syntax = `A filter is words that a task must all match: kind:send_* retries>3 -reason:"crash loop"
  queue: id: kind: runner: encoding:   whole names; * stands for any text, a,b for either
  partition:  the whole key, in quotes where it has spaces; partition:"" for none
  state:      ` + strings.Join(StateWords(), " ") + ` cursor, or live, ended, all
  error: reason:                       a part, in quotes where it has spaces; error:"" for none
  cause:      the id of a cause, as the groups of dead tasks show it
  header.NAME: params.PATH:            params.user.id:42  params.total>99.5  params.lines.0.sku:a*
  is:         declined suspect start-only cancel-asked started ahead unique
  priority cost retries crashes snoozes attempts size    numbers, with : > < >= <=
              retries counts failures: it is 3 for a task that died after two retries
  age created started declined ended   age>1h, ended<30m (ago), created>2026-11-23
  due expires                          due<10m (from now)
A - before a word means not. A word alone is searched for in the ref, the kind and the last error.
`

// HiddenPrefix begins the names of the queues in which midge keeps its own records. A filter matches their
// tasks only if it names the queue.
const HiddenPrefix = storage.ReservedQueues

// Filter chooses tasks. The zero Filter matches every task of the queues that are not hidden.
type Filter struct {
	terms  []term
	now    time.Time
	hidden bool
}

// term is one word.
type term struct {
	not   bool
	field field
	name  string   // the names behind the field, with dots and the quotes that they need
	path  []string // the same names apart
	op    string   // "" for a word without a field
	value []pattern
	test  func(s *subject) bool
	// states are the states in which a task can match, nil for all.
	states []storage.State
}

// subject is the task that is tested, at the moment from which durations count.
type subject struct {
	storage.Task

	now    time.Time
	params *payload.Values // nil until a word asks for them
}

// values returns the parameters, decoded once for all words.
func (s *subject) values() *payload.Values {
	if s.params == nil {
		s.params = payload.ValuesOf(s.Encoding, s.Payload)
	}
	return s.params
}

// At returns the filter with the moment from which its durations count: the time of the storage. Without it
// they count from this machine's time at each call of Match.
func (f Filter) At(now time.Time) Filter {
	f.now = now
	return f
}

// WithHidden returns a filter that also matches tasks of hidden queues, for a caller who names the queue
// outside of the filter.
func (f Filter) WithHidden() Filter {
	f.hidden = true
	return f
}

// IsZero reports whether the filter has no words.
func (f Filter) IsZero() bool { return len(f.terms) == 0 }

// Match reports whether a task matches every word.
func (f Filter) Match(t storage.Task) bool {
	s := subject{Task: t, now: f.now}
	if s.now.IsZero() {
		s.now = time.Now()
	}
	if !f.MatchQueue(t.Queue) {
		return false
	}
	for i := range f.terms {
		if f.terms[i].field.kind != ofQueue && f.terms[i].test(&s) == f.terms[i].not {
			return false
		}
	}
	return true
}

// MatchQueue reports whether tasks of a queue can match. Tasks of a hidden queue can match only if the filter
// names the queue.
func (f Filter) MatchQueue(queue string) bool {
	named := f.hidden || !strings.HasPrefix(queue, HiddenPrefix)
	for i := range f.terms {
		t := &f.terms[i]
		if t.field.kind != ofQueue {
			continue
		}
		of := slices.IndexFunc(t.value, func(p pattern) bool { return p.match(queue) })
		if of >= 0 == t.not {
			return false
		}
		named = named || !t.not && strings.HasPrefix(t.value[of].parts[0], HiddenPrefix)
	}
	return named
}

// NamesHidden reports whether a word of the filter names hidden queues, so that their tasks can match.
func (f Filter) NamesHidden() bool {
	return slices.ContainsFunc(f.terms, func(t term) bool {
		return t.field.kind == ofQueue && !t.not && slices.ContainsFunc(t.value, func(p pattern) bool {
			return strings.HasPrefix(p.parts[0], HiddenPrefix)
		})
	})
}

// Queues returns the names of the only queues in which tasks can match, if a word names queues without a
// "*". Otherwise names is nil, and the names of all these queues begin with prefix.
func (f Filter) Queues() (names []string, prefix string) {
	for i := range f.terms {
		t := &f.terms[i]
		if t.field.kind != ofQueue || t.not {
			continue
		}
		var exact []string
		for _, p := range t.value {
			if name, ok := p.exact(); ok {
				exact = append(exact, name)
			}
		}
		if len(exact) == len(t.value) {
			names = slices.Compact(slices.Sorted(slices.Values(exact)))
			names = slices.DeleteFunc(names, func(name string) bool { return !f.MatchQueue(name) })
			return append([]string{}, names...), ""
		}
		if p := t.value[0].parts[0]; len(t.value) == 1 && len(p) > len(prefix) {
			prefix = p
		}
	}
	return nil, prefix
}

// Partition returns the key of the only partition whose tasks can match, if a word names one key without a
// "*". Otherwise it returns "".
func (f Filter) Partition() string {
	for i := range f.terms {
		t := &f.terms[i]
		if t.field.name != partition || t.not || len(t.value) != 1 {
			continue
		}
		if key, exact := t.value[0].exact(); exact && storage.CheckPartition(key) == nil {
			return key
		}
	}
	return ""
}

// States returns the states in which tasks can match, in the order of a task's life. It returns the states of
// otherwise, unless a word asks for a property that only tasks in some states have, such as state:dead or
// ended<1h: then it returns those states. Schedules match only if a word names their state.
func (f Filter) States(otherwise ...storage.State) []storage.State {
	able, cursors := otherwise, false
	for i := range f.terms {
		if t := &f.terms[i]; t.states != nil && !t.not {
			able = storage.States()
			cursors = cursors || t.field.kind == ofState && slices.Contains(t.states, storage.Cursors)
		}
	}
	return slices.DeleteFunc(storage.States(), func(s storage.State) bool {
		return !slices.Contains(able, s) || s == storage.Cursors && !cursors && !slices.Contains(otherwise, s) ||
			slices.ContainsFunc(f.terms, func(t term) bool { return t.states != nil && !slices.Contains(t.states, s) })
	})
}

// params counts the words about parameters.
func (f Filter) params() (n int) {
	for i := range f.terms {
		if f.terms[i].field.kind == ofParams {
			n++
		}
	}
	return n
}

// Fields returns the parameters and headers that the filter reads, each as "params" and the steps of its
// path, or as "header" and its name. A caller refuses the filter to people who may not see one of them. The
// elements of a list have the path of the list, with or without their number.
func (f Filter) Fields() (fields [][]string) {
	for i := range f.terms {
		switch t := &f.terms[i]; t.field.kind {
		case ofParams:
			fields = append(fields, append([]string{"params"}, t.path...))
		case ofHeader:
			fields = append(fields, []string{"header", strings.Join(t.path, ".")})
		default:
		}
	}
	return fields
}

// String returns the filter as Parse reads it. Equal filters have equal texts.
func (f Filter) String() string {
	words := make([]string, len(f.terms))
	for i := range f.terms {
		words[i] = f.terms[i].String()
	}
	return strings.Join(words, " ")
}

// String returns the word as Parse reads it.
func (t *term) String() string {
	var b strings.Builder
	if t.not {
		b.WriteByte('-')
	}
	if t.op != "" {
		b.WriteString(t.field.name + t.name + t.op)
	}
	for i, p := range t.value {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.text(t.op == ""))
	}
	return b.String()
}

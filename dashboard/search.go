package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/dashboard/internal/sampler"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/survey"
	"github.com/midgehq/midge/storage"
)

// hit is something that a search found by its name.
type hit struct {
	What  string `json:"what"` // "queue", "kind" and so on
	Label string `json:"label"`
	URL   string `json:"url"`
}

// searchData is the data of the page of a search.
type searchData struct {
	Query string
	Hits  []hit
	More  int // how many hits are shown, if there are more; else 0
	Tasks []taskRow
	// Missed is a sentence about why tasks may be missing, "" if all that the text names were looked up.
	Missed string
	Scan   string // the address of a scan of the tasks that have not ended
	All    string // the address of a scan that includes ended tasks
}

const (
	mostHits  = 12
	mostQuery = 4096
	// shortestID is how many bytes must be typed before they are looked up as an id.
	shortestID = 6
	// mostTyped and mostLookups limit how often a search reads tasks from the storage, and suggestFor and
	// searchFor for how long: while a text is typed, and for the page of a search.
	mostTyped, mostLookups = 100, 1000
	suggestFor, searchFor  = 300 * time.Millisecond, 3 * time.Second
)

// search finds the things that a text names: tasks by a ref, by an id, or by a line of a log that contains
// one of them, and everything else by its name.
func (s *server) search(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > mostQuery {
		text = text[:mostQuery]
	}
	s.show(w, r, func(r *http.Request, v *view) error {
		v.Page, v.Title, v.Kind = "search", text, "Search"
		d := searchData{Query: text}
		tasks, cut, err := s.named(r.Context(), v.Sample, text, mostLookups, searchFor)
		switch {
		case r.Context().Err() != nil:
			return r.Context().Err()
		case err != nil:
			_, d.Missed = s.explain(r.Context(), err)
		case cut:
			d.Missed = "A search looks up 1,000 tasks at most. Name the queue of the task, as in queue/id."
		}
		if len(tasks) == 1 {
			return redirectError(v.TaskURL(tasks[0].Ref))
		}
		for _, t := range tasks {
			d.Tasks = append(d.Tasks, v.row(t))
		}
		var more bool
		if d.Hits, more = v.hits(text, mostHits*4); more {
			d.More = len(d.Hits)
		}
		if text != "" {
			words := filter.Quote(text)
			d.Scan = v.scanURL(words)
			d.All = v.scanURL("state:all " + words)
			v.Command = v.listCommand(chosen{Filter: words}, "")
		}
		v.Data = d
		return nil
	})
}

// redirectError is the address of a page to which a request is redirected.
type redirectError string

func (e redirectError) Error() string { return "redirected to " + string(e) }

// scanURL returns the address of a list of tasks whose scan goes on by itself until it has found a page.
func (v *view) scanURL(words string) string { return v.URL("/tasks", "filter", words, "scan", "1") }

// suggest answers with the tasks and other things that a text names, while somebody types it. It finds names
// in the sample, and looks up few tasks in the storage.
func (s *server) suggest(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	hits := []hit{}
	if now, err := s.sampler.Sample(r.Context()); err == nil && text != "" && len(text) <= mostQuery {
		v.Sample = now
		var tasks []storage.Task
		if len(text) >= shortestID && strings.ContainsAny(text, "0123456789") { // otherwise somebody types a word
			tasks, _, _ = s.named(r.Context(), now, text, mostTyped, suggestFor) // names are suggested in any case
		}
		for _, t := range tasks[:min(mostHits, len(tasks))] {
			hits = append(hits, hit{"task", t.Ref.String(), v.TaskURL(t.Ref)})
		}
		named, _ := v.hits(text, mostHits) // the page of the search has more
		hits = append(hits, named...)
		if words := filter.Quote(text); utf8.ValidString(text) {
			hits = append(hits, hit{"scan", "Scan tasks for “" + text + "”", v.scanURL(words)})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(hits) //nolint:errchkjson // texts alone, and the viewer may be gone
}

// found collects the hits of one sort.
type found struct {
	text  string
	most  int
	best  []hit // hits whose names begin with the text
	other []hit
}

func (f *found) full() bool { return len(f.best) >= f.most }

func (f *found) add(what, label, url, names string) {
	switch at := strings.Index(strings.ToLower(names), f.text); {
	case at == 0 && len(f.best) < f.most:
		f.best = append(f.best, hit{what, label, url})
	case at > 0 && len(f.other) < f.most:
		f.other = append(f.other, hit{what, label, url})
	}
}

// hits finds queues, kinds, causes, schedules and runners by a part of their names. It returns at most as
// many hits as most, divides them among the sorts, and reports whether there are more.
func (v *view) hits(text string, most int) (hits []hit, more bool) {
	text = strings.ToLower(text)
	if text == "" || v.Sample == nil {
		return nil, false
	}
	var sorts [][]hit
	each := func(n int, add func(f *found, i int)) {
		f := &found{text: text, most: most + 1} // so that dealt leaves one if there are more
		for i := 0; i < n && !f.full(); i++ {
			add(f, i)
		}
		all := slices.Concat(f.best, f.other)
		sorts = append(sorts, all[:min(f.most, len(all))])
	}
	s := v.Sample
	each(len(s.Queues), func(f *found, i int) {
		f.add("queue", s.Queues[i].Queue, v.QueueURL(s.Queues[i].Queue), s.Queues[i].Queue)
	})
	each(len(s.Kinds), func(f *found, i int) {
		f.add("kind", s.Kinds[i], v.listURL(chosen{Filter: "state:all kind:" + s.Kinds[i]}, ""), s.Kinds[i])
	})
	if s.Dead != nil {
		each(len(s.Dead.Groups), func(f *found, i int) {
			g := s.Dead.Groups[i]
			f.add(format.Number(g.Tasks)+" dead", g.Title(), v.CauseURL(g.ID), g.Error)
		})
	}
	each(len(s.Schedules), func(f *found, i int) {
		c := &s.Schedules[i]
		f.add("schedule", c.Name(), v.URL("/schedules")+"#"+anchor(c.Ref), c.Name())
	})
	each(len(s.Runners), func(f *found, i int) {
		info, label := &s.Runners[i], s.Runners[i].ID
		if !strings.Contains(strings.ToLower(label), text) {
			label += " on " + info.Host
		}
		f.add("runner", label, v.URL("/runners/"+info.ID), info.ID+" "+info.Host)
	})
	hits, left := dealt(sorts, most)
	return hits, len(left) > 0
}

// dealt takes from all sorts in turn, at most as many as most. It returns what it took, and what it left,
// each in the order of the sorts.
func dealt[T any](sorts [][]T, most int) (taken, left []T) {
	counts := make([]int, len(sorts))
	for more := true; more && most > 0; {
		more = false
		for i := range sorts {
			if most > 0 && counts[i] < len(sorts[i]) {
				counts[i], most, more = counts[i]+1, most-1, true
			}
		}
	}
	for i, n := range counts {
		taken, left = append(taken, sorts[i][:n]...), append(left, sorts[i][n:]...)
	}
	return taken, left
}

// errSlow is the error of a search that was out of time.
var errSlow = &statusError{http.StatusServiceUnavailable, "The storage took longer than 3 s."}

// named finds the tasks that a text names: by the refs in it or, if no such task exists, by the ids in it,
// which it looks up in all queues. It looks up at most as many refs as most, and then as many ids again,
// within the time d. cut reports that these were too few. With an error it returns what it has found so far.
func (s *server) named(
	ctx context.Context, now *sampler.Sample, text string, most int, d time.Duration,
) (tasks []storage.Task, cut bool, err error) {
	within, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	refs, ids := scan.Mentioned(text)
	tasks, err = s.existing(within, refs[:min(most, len(refs))])
	if len(tasks) == 0 && err == nil {
		refs = refs[:0]
		for _, id := range ids {
			for i := range now.Queues {
				if len(refs) < most {
					refs = append(refs, storage.Ref{Queue: now.Queues[i].Queue, ID: id})
				}
			}
		}
		cut = len(refs) < len(ids)*len(now.Queues)
		tasks, err = s.existing(within, refs)
	}
	if err != nil && within.Err() != nil {
		err = errSlow
	}
	return tasks, cut, err
}

// existing reads the tasks of refs, some of them concurrently. It leaves out tasks that do not exist, damaged
// ones, and midge's own. With an error it returns the tasks that it has found so far.
func (s *server) existing(ctx context.Context, refs []storage.Ref) (tasks []storage.Task, err error) {
	found := make([]*storage.Task, len(refs))
	err = survey.Concurrently(len(refs), func(i int) error {
		if storage.Reserved(refs[i].Queue) {
			return nil
		}
		t, err := s.store.Task(ctx, refs[i])
		if err == nil {
			found[i] = &t
		} else if !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrDamaged) {
			return err
		}
		return nil
	})
	for _, t := range found {
		if t != nil {
			tasks = append(tasks, *t)
		}
	}
	return tasks, err
}

package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
)

// hit is something that a search found by its name.
type hit struct {
	What  string `json:"what"` // "queue", "kind" and so on
	Label string `json:"label"`
	URL   string `json:"url"`
}

// searchData is what the page of a search shows.
type searchData struct {
	Query string
	Hits  []hit
	Tasks []taskRow
	Scan  string // the address of a search through all tasks
	All   string // the same through those that have ended, too
}

const (
	mostHits    = 12
	mostQuery   = 4096
	mostLookups = 1000 // queues in which a bare id is looked for
	mostInLine  = 40   // words of a pasted line that are tried as refs or ids
)

var (
	refInText = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}/[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}`)
	idInText  = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9_.:-]{7,127}`)
)

// search finds what a text names: a task by its ref, its id or a line of a log that has one, and
// everything else by its name.
func (s *server) search(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > mostQuery {
		text = text[:mostQuery]
	}
	s.show(w, r, func(r *http.Request, v *view) error {
		v.Page, v.Title, v.Kind = "search", text, "Search"
		d := searchData{Query: text}
		tasks, err := s.named(r.Context(), v.Sample, text)
		if err != nil {
			return err
		}
		if len(tasks) == 1 {
			return redirectError(v.TaskURL(tasks[0].Ref))
		}
		for _, t := range tasks {
			d.Tasks = append(d.Tasks, v.row(t))
		}
		d.Hits = v.hits(text, mostHits*4)
		if text != "" {
			words := filter.Quote(text)
			d.Scan = v.listURL(chosen{Filter: words}, "")
			d.All = v.listURL(chosen{Filter: "state:all " + words}, "")
			v.Command = listCommand(chosen{Filter: words}, "")
		}
		v.Data = d
		return nil
	})
}

// redirectError leads to another page.
type redirectError string

func (e redirectError) Error() string { return "redirected to " + string(e) }

// suggest answers with what a text names, while it is typed.
func (s *server) suggest(w http.ResponseWriter, r *http.Request) {
	v := s.view(r)
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	hits := []hit{}
	if now, err := s.sampler.sample(r.Context()); err == nil && text != "" && len(text) <= mostQuery {
		v.Sample = now
		if refs := refInText.FindAllString(text, mostInLine); len(refs) > 0 {
			for _, t := range s.existing(r.Context(), refs) {
				hits = append(hits, hit{"task", t.Ref.String(), v.TaskURL(t.Ref)})
			}
		}
		hits = append(hits, v.hits(text, mostHits)...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(hits) //nolint:errchkjson // texts alone, and the viewer may be gone
}

// hits finds queues, kinds, schedules and runners by a part of their names.
func (v *view) hits(text string, most int) (hits []hit) {
	text = strings.ToLower(text)
	if text == "" || v.Sample == nil {
		return nil
	}
	add := func(what, label, url string) {
		if len(hits) < most && strings.Contains(strings.ToLower(label), text) {
			hits = append(hits, hit{what, label, url})
		}
	}
	for i := range v.Sample.queues {
		add("queue", v.Sample.queues[i].Queue, v.QueueURL(v.Sample.queues[i].Queue))
	}
	var kinds []string
	for i := range v.Sample.runners {
		kinds = append(kinds, v.Sample.runners[i].Kinds...)
	}
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		add("kind", kind, v.listURL(chosen{Filter: "state:all kind:" + kind}, ""))
	}
	for i := range v.Sample.schedules {
		c := &v.Sample.schedules[i]
		add("schedule", c.Name(), v.URL("/schedules")+"#"+c.Anchor())
	}
	for i := range v.Sample.runners {
		info := &v.Sample.runners[i]
		add("runner", info.ID, v.URL("/runners/"+info.ID))
		byHost := strings.Contains(strings.ToLower(info.Host), text)
		if byHost && !strings.Contains(strings.ToLower(info.ID), text) && len(hits) < most {
			hits = append(hits, hit{"runner", info.ID + " on " + info.Host, v.URL("/runners/" + info.ID)})
		}
	}
	return hits
}

// named finds the tasks that a text names: by a ref in it, else by an id in it.
func (s *server) named(ctx context.Context, now *sample, text string) ([]storage.Task, error) {
	if tasks := s.existing(ctx, refInText.FindAllString(text, mostInLine)); len(tasks) > 0 {
		return tasks, nil
	}
	var ids []string
	if len(text) <= storage.MaxName && storage.CheckName("id", text) == nil {
		ids = []string{text}
	} else {
		ids = idInText.FindAllString(text, mostInLine)
		ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.ContainsAny(id, "0123456789") })
	}
	var refs []string
	for _, id := range slices.Compact(ids) {
		for i := range now.queues {
			if len(refs) < mostLookups {
				refs = append(refs, now.queues[i].Queue+"/"+id)
			}
		}
	}
	return s.existing(ctx, refs), ctx.Err()
}

// existing reads the tasks of refs that are there.
func (s *server) existing(ctx context.Context, refs []string) (tasks []storage.Task) {
	slices.Sort(refs)
	for _, text := range slices.Compact(refs) {
		ref, err := parseRef(text)
		if err != nil {
			continue
		}
		t, err := s.store.Task(ctx, ref)
		if err == nil {
			tasks = append(tasks, t)
		} else if !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrDamaged) {
			return tasks
		}
	}
	return tasks
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/scan"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// rig has the settings, the storage and the table of the measurements.
type rig struct {
	*settings

	place *place
	scene *scene.Scene
	table *table
}

// dashboardAt is a measured dashboard. It is a process of its own, or runs in this process on the memory
// storage.
type dashboardAt struct {
	url    string
	pid    int
	client *http.Client
	stop   func() error
}

// dashboard starts a dashboard. It writes the history only if history is set, because the history is not a
// cost of viewers. A dashboard on the memory storage never writes it.
func (r *rig) dashboard(ctx context.Context, history bool) (*dashboardAt, error) {
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	d := &dashboardAt{pid: os.Getpid(), client: client}
	if r.place.url == "" {
		site, err := serve(ctx, r.place.store, false)
		if err != nil {
			return nil, err
		}
		d.url, d.stop = site.url, site.close
		return d, nil
	}
	c, err := start(ctx, "dashboard", spec{URL: r.place.url, History: history})
	if err != nil {
		return nil, err
	}
	d.url, d.pid, d.stop = c.answer, c.cmd.Process.Pid, c.stop
	return d, nil
}

// get reads a page. It returns how long that took and how many bytes the body has, compressed.
func (d *dashboardAt) get(ctx context.Context, path string) (took time.Duration, size int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+path, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Accept-Encoding", "gzip")
	began := time.Now()
	answer, err := d.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	body, err := io.ReadAll(answer.Body)
	took = time.Since(began)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return took, len(body), err
}

// calls returns how often the dashboard has called the storage.
func (d *dashboardAt) calls(ctx context.Context) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+callsPath, nil)
	if err != nil {
		return 0, err
	}
	answer, err := d.client.Do(req)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}

func kilobytes(n int) string { return fmt.Sprintf("%.1f", float64(n)/1024) }

// suggestions is the name of the only address in the list that is not a page.
const suggestions = "Suggestions"

// searching is the name of the page whose filter does not match the first eight thousand tasks.
const searching = "Tasks, filter that searches"

// page is the name and the path of a page.
type page struct{ name, path string }

// anew returns an address of the page that differs for each i, so that the dashboard renders the page anew.
func (p *page) anew(i int) string {
	mark := "?"
	if strings.Contains(p.path, mark) {
		mark = "&"
	}
	return p.path + mark + "n=" + strconv.Itoa(i)
}

// budget returns how long the page may take. A page whose filter searches thousands of tasks takes longer: it
// searches for the time of a step of a scan, and then shows how far it is.
func (p *page) budget() time.Duration {
	if p.name == searching {
		return scan.DefaultTime + pageBudget
	}
	return pageBudget
}

// list returns the pages to measure.
func (r *rig) list(ctx context.Context) ([]page, error) {
	var queue string
	for name, err := range storage.EachQueue(ctx, r.place.store, "tenant-5") {
		if err != nil {
			return nil, err
		}
		queue = name
		break
	}
	pages := []page{
		{"Overview", "/"}, {"Queues", "/queues"}, {"Queue", "/queues/" + queue}, {"Tasks, live", "/tasks"},
	}
	for _, state := range storage.States() {
		if state != storage.Cursors {
			pages = append(pages, page{"Tasks, " + string(state), "/tasks?state=" + string(state)})
		}
	}
	for _, state := range []storage.State{storage.Waiting, storage.Pending, storage.Dead} {
		found, err := r.place.store.Tasks(ctx, storage.TasksQuery{Queue: queue, State: state, Limit: 1})
		if err != nil || len(found.Tasks) == 0 {
			return nil, errors.Join(err, fmt.Errorf("no task of %s is %s", queue, state))
		}
		pages = append(pages, page{"Task, " + string(state), "/r/" + found.Tasks[0].Ref.String()})
		if state == storage.Dead {
			cause := fingerprint.Of(found.Tasks[0]).ID
			pages = append(pages, page{"Cause", "/dead?cause=" + cause},
				page{"Search, an id", "/search?q=" + found.Tasks[0].ID})
		}
	}
	filter := func(text string) string { return "/tasks?filter=" + url.QueryEscape(text) }
	return append(
		pages,
		page{"Tasks of a queue, filter", filter("kind:kind.* -id:*7*") + "&queue=" + queue},
		page{searching, filter("kind:kind.export* retries<3")},
		page{"Tasks, filter of the dead", filter("state:dead error:refused")},
		page{"Dead", "/dead"}, page{"Schedules", "/schedules"}, page{"Runners", "/runners"},
		page{"Runner", "/runners/" + r.scene.Runners[7].ID},
		page{"Metrics, 1 h", "/metrics?span=1h"}, page{"Metrics, 24 h", "/metrics?span=24h"},
		page{"Metrics, 7 d", "/metrics?span=7d"}, page{"Metrics, 90 d", "/metrics?span=90d"},
		page{"Metrics of a queue, 90 d", "/metrics?span=90d&queue=" + queue},
		page{"Audit", "/audit"}, page{"Search, a word", "/search?q=tenant"},
		page{suggestions, "/suggest?q=tenant-4"},
	), nil
}

const (
	pageBudget = 50 * time.Millisecond
	sizeBudget = 40 << 10
	// assetBudget bounds all styles and scripts together.
	assetBudget = 30 << 10
)

// pages times each page.
func (r *rig) pages(ctx context.Context) (err error) {
	d, err := r.dashboard(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	pages, err := r.list(ctx)
	if err != nil {
		return err
	}
	if err := r.quiet(ctx, d); err != nil {
		return err
	}
	largest, requests := 0, 0
	before, err := used(d.pid)
	if err != nil {
		return err
	}
	for _, p := range pages {
		took := make([]time.Duration, 0, r.requests)
		for range 5 { // to warm up
			if _, _, err := d.get(ctx, p.path); err != nil {
				return err
			}
		}
		for i := range r.requests {
			t, size, err := d.get(ctx, p.anew(i))
			if err != nil {
				return err
			}
			took, largest = append(took, t), max(largest, size)
		}
		requests += 5 + r.requests
		p95 := quantile(took, 0.95)
		want := fmt.Sprintf("p95 %d", p.budget().Milliseconds())
		r.table.set(p.name+", ms", want, millis(quantile(took, 0.5))+" · "+millis(p95), p95 <= p.budget())
	}
	after, err := used(d.pid)
	if err != nil {
		return err
	}
	r.table.set("processor time a page, ms", "", millis((after-before)/time.Duration(requests)), true)
	r.table.set("largest page, KB gzipped", "40", kilobytes(largest), largest <= sizeBudget)
	return errors.Join(r.assets(ctx, d), r.cold(ctx, d))
}

// assets measures the size of the styles and scripts that all pages load.
func (r *rig) assets(ctx context.Context, d *dashboardAt) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/", nil)
	if err != nil {
		return err
	}
	answer, err := d.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	all := 0
	for _, path := range slices.Compact(slices.Sorted(slices.Values(loaded.FindAllString(string(text), -1)))) {
		_, size, err := d.get(ctx, path)
		if err != nil {
			return err
		}
		all += size
	}
	r.table.set("CSS and JS, KB gzipped", "30", kilobytes(all), all <= assetBudget)
	return nil
}

// loaded matches the paths of the styles and scripts that a page loads.
var loaded = regexp.MustCompile(`/assets/[a-z0-9]+/[a-z.-]+\.(css|mjs)`)

// cold times the Overview after pauses without a viewer. The dashboard then has to read the storage before it
// can answer.
func (r *rig) cold(ctx context.Context, d *dashboardAt) error {
	var took []time.Duration
	tick := time.NewTicker(1100 * time.Millisecond) // longer than a sample of the storage stays fresh
	defer tick.Stop()
	for range 20 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		t, _, err := d.get(ctx, "/")
		if err != nil {
			return err
		}
		took = append(took, t)
	}
	worst := quantile(took, 0.95)
	r.table.set("Overview after a pause, ms", "p95 50", millis(quantile(took, 0.5))+" · "+millis(worst),
		worst <= pageBudget)
	return nil
}

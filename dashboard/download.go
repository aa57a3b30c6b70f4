package dashboard

import (
	"bufio"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/storage"
)

// downloads knows the tasks that each dialog has downloaded before their deletion, so that the deletion takes
// exactly these tasks, as they were then.
type downloads struct {
	mu     sync.Mutex
	ofForm map[string]*downloaded
	last   []string // the ids of the dialogs, the oldest first
}

// downloaded are the tasks of a download. Until the whole file was sent, whole is false.
type downloaded struct {
	tasks []bulk.Target
	whole bool
}

// mostDownloads limits the downloads that are remembered, and mostDownloaded the tasks of each. The dialog of
// a deletion counts about 20,000 tasks at most.
const mostDownloads, mostDownloaded = 16, 40_000

// set remembers the download of a dialog, instead of an earlier one of the same dialog.
func (ds *downloads) set(form string, d *downloaded) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if ds.ofForm == nil {
		ds.ofForm = map[string]*downloaded{}
	}
	if ds.ofForm[form] == nil {
		ds.last = append(ds.last, form)
	}
	if ds.ofForm[form] = d; len(ds.last) > mostDownloads {
		delete(ds.ofForm, ds.last[0])
		ds.last = slices.Delete(ds.last, 0, 1)
	}
}

// of returns the download of a dialog, or nil.
func (ds *downloads) of(form string) *downloaded {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	return ds.ofForm[form]
}

// The sentences of a dialog that offers no download.
const (
	noPayloads = "Your role does not permit you to see parameters, so you cannot download the tasks first."
	redacted   = "This dashboard hides fields of parameters. A download could not bring the tasks back, so " +
		"there is none. To keep the tasks, delete them with midge task rm --backup."
	uncounted = "The tasks were not all counted, so they cannot be downloaded here first. " +
		"To keep them, delete them with midge task rm --backup."
	tooMany = "These are more tasks than can be downloaded here first. " +
		"To keep them, delete them with midge task rm --backup."
)

// offerDownload adds to the dialog of a deletion the address of its download, or why there is none.
func (s *server) offerDownload(v *view, d *askData) {
	switch {
	case !v.May(string(access.Payloads)):
		d.NoDownload = noPayloads
	case s.cfg.Redact != nil:
		d.NoDownload = redacted
	case d.Chosen != nil && d.Most == 0:
		d.NoDownload = uncounted
	case d.Most > mostDownloaded:
		d.NoDownload = tooMany
	default:
		seen := []string{strconv.FormatInt(d.Seen, 10)}
		q := url.Values{"do": {d.Do}, "form": {d.Form}, "ref": d.Refs, "version": d.Versions, "seen": seen}
		if c := d.Chosen; c != nil {
			q = url.Values{
				"do": {d.Do}, "form": {d.Form}, "all": {"1"}, "state": {c.State}, "queue": {c.Queue},
				"filter": {c.Filter}, "count": {d.Confirms()}, "seen": seen,
			}
		}
		d.Download = v.URL("/action/download") + "?" + q.Encode()
	}
}

// downloadTasks sends the tasks that a dialog is about to delete, in the format of midge task restore.
func (s *server) downloadTasks(w http.ResponseWriter, r *http.Request) {
	req, form, err := s.downloadOf(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	name := "tasks-" + s.now().UTC().Format("20060102T150405Z") + ".jsonl"
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	if r.Method == http.MethodHead { // nobody gets the file
		return
	}
	s.downloads.set(form, &downloaded{})
	out := bufio.NewWriterSize(w, 64<<10)
	tasks, err := bulk.Save(r.Context(), s.session, req, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the browser reports that the file is not whole
	}
	s.downloads.set(form, &downloaded{tasks, true})
}

// downloadOf returns the deletion whose tasks a request downloads, and the id of its dialog.
func (s *server) downloadOf(r *http.Request) (req bulk.Request, form string, err error) {
	a, d, err := s.asked(r)
	if err != nil {
		return req, "", err
	}
	if form = r.FormValue("form"); a.bulk != bulk.Delete || storage.CheckName("form", form) != nil {
		return req, "", storage.Invalid("action", d.Do, "the deletion of a dialog")
	}
	v := s.view(r)
	if req, err = s.request(r, v, a, d); err != nil {
		return req, "", err
	}
	if d.Chosen != nil {
		if req.Limit, err = countOf(r.FormValue("count")); err != nil {
			return req, "", err
		}
		d.Most = int64(req.Limit)
	}
	if s.offerDownload(v, d); d.NoDownload != "" {
		return req, "", &statusError{http.StatusForbidden, d.NoDownload}
	}
	return req, form, nil
}

// takeDownloaded makes a deletion take the tasks that its dialog has downloaded, if it has downloaded any.
// saved is set if the browser has asked for the download.
func (s *server) takeDownloaded(req *bulk.Request, form string, saved bool) (bool, error) {
	d := s.downloads.of(form)
	switch {
	case d == nil && !saved:
		return false, nil
	case d == nil:
		return false, &statusError{http.StatusConflict, "This process does not know which tasks were downloaded, " +
			"so nothing was deleted. Open the dialog again."}
	case !d.whole:
		return false, &statusError{http.StatusConflict, "The download has not ended, or has failed, so nothing " +
			"was deleted. Wait for its end, or open the dialog again."}
	case len(d.tasks) == 0:
		return false, &statusError{http.StatusConflict, "There was no task to download, so nothing was deleted."}
	}
	*req = bulk.Request{Action: req.Action, Tasks: d.tasks, Rate: req.Rate}
	return true, nil
}

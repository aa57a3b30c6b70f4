package dashboard

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/chart"
	"github.com/midgehq/midge/dashboard/internal/format"
	"github.com/midgehq/midge/internal/filter"
	"github.com/midgehq/midge/storage"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// pages are the parsed templates and the assets, by name.
type pages struct {
	byName map[string]*template.Template
	assets map[string]asset
	// version is a hash of all assets. It is in their addresses, so that browsers may cache them forever.
	version string
}

type asset struct {
	plain, zipped []byte
	kind          string
}

// parsePages parses the templates and the assets once. All dashboards of a process share them.
var parsePages = sync.OnceValues(func() (pages, error) {
	p := pages{byName: map[string]*template.Template{}, assets: map[string]asset{}}
	shell, err := template.New("shell.html").Funcs(funcs).
		ParseFS(pageFiles, "pages/shell.html", "pages/parts.html")
	if err != nil {
		return p, err
	}
	names, err := fs.Glob(pageFiles, "pages/*.html")
	if err != nil {
		return p, err
	}
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		page, err := shell.Clone()
		if err != nil {
			return p, err
		}
		if p.byName[base], err = page.ParseFS(pageFiles, name); err != nil {
			return p, err
		}
	}
	return p, p.readAssets()
})

func (p *pages) readAssets() error {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return err
	}
	sum := sha256.New()
	for _, entry := range entries {
		plain, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			return err
		}
		sum.Write(plain)
		kind := mime.TypeByExtension(path.Ext(entry.Name()))
		if strings.HasSuffix(entry.Name(), ".mjs") {
			kind = "text/javascript; charset=utf-8"
		}
		p.assets[entry.Name()] = asset{plain: plain, zipped: zipped(plain), kind: kind}
	}
	p.version = hex.EncodeToString(sum.Sum(nil))[:12]
	return nil
}

// zipped compresses an asset. This is done once for all requests.
func zipped(plain []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // cannot fail: the level is a constant of gzip
	_, _ = w.Write(plain)                                 // a write to a buffer cannot fail
	_ = w.Close()
	return b.Bytes()
}

// takesGzip reports whether the browser accepts a compressed response.
func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

func (s *server) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := s.pages.assets[r.PathValue("name")]
	if !ok || r.PathValue("version") != s.pages.version {
		s.fail(w, r, errNoPage)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Vary", "Accept-Encoding")
	if takesGzip(r) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(a.zipped)
		return
	}
	_, _ = w.Write(a.plain)
}

// filler fills a view with the data of the page that a request asks for.
type filler func(*http.Request, *view) error

// show answers a request with the page that fill makes.
func (s *server) show(w http.ResponseWriter, r *http.Request, fill filler) {
	if v := s.look(w, r); v != nil {
		body, err := s.filled(r, v, fill)
		s.answer(w, r, body, err)
	}
}

// showLook is like show, for a page that depends only on the sample and the history. Such a page is rendered
// once for all viewers who ask for it.
func (s *server) showLook(w http.ResponseWriter, r *http.Request, fill filler) {
	if v := s.look(w, r); v != nil {
		body, err := s.rendered.page(r, v).get(r.Context(), func() ([]byte, error) { return s.filled(r, v, fill) })
		s.answer(w, r, body, err)
	}
}

// look makes the view of a request, with the current sample, or with the last one if the storage fails. If
// there is no sample, look answers the request with the error, and returns nil.
func (s *server) look(w http.ResponseWriter, r *http.Request) *view {
	v := s.view(r)
	if now, err := s.sampler.Sample(r.Context()); err == nil {
		v.Sample = now
	} else if last := s.sampler.Last(); last == nil {
		s.fail(w, r, err)
		return nil
	} else {
		v.Sample = last
	}
	v.Now, v.Notice = s.sampler.StorageNow().In(v.Zone()), s.notices.of(r.URL.Query().Get("said"))
	return v
}

// errRender means that a page could not be rendered. The log has the reason.
var errRender = errors.New("the page cannot be rendered")

// filled fills the view by fill, and returns the rendered page.
func (s *server) filled(r *http.Request, v *view, fill filler) ([]byte, error) {
	if err := fill(r, v); err != nil {
		return nil, err
	}
	return s.markup(r, v)
}

// answer answers a request with a page or, if err is not nil, with a redirection or an error.
func (s *server) answer(w http.ResponseWriter, r *http.Request, body []byte, err error) {
	var elsewhere redirectError
	switch {
	case errors.As(err, &elsewhere):
		http.Redirect(w, r, string(elsewhere), http.StatusSeeOther)
	case errors.Is(err, errRender):
		http.Error(w, failed, http.StatusInternalServerError)
	case err != nil:
		s.fail(w, r, err)
	default:
		s.write(w, r, http.StatusOK, body)
	}
}

// render answers a request with the page of a view.
func (s *server) render(w http.ResponseWriter, r *http.Request, status int, v *view) {
	body, err := s.markup(r, v)
	if err != nil {
		http.Error(w, failed, http.StatusInternalServerError)
		return
	}
	s.write(w, r, status, body)
}

// markup returns the rendered page, compressed if the browser accepts that.
func (s *server) markup(r *http.Request, v *view) ([]byte, error) {
	var b bytes.Buffer
	if err := s.pages.byName[v.Page].ExecuteTemplate(&b, "shell.html", v); err != nil {
		s.cfg.Log.LogAttrs(r.Context(), slog.LevelError, "midge: a page of the dashboard cannot be rendered",
			slog.String("page", v.Page), slog.Any("error", err))
		return nil, errRender
	}
	if takesGzip(r) {
		return zippedPage(b.Bytes()), nil
	}
	return b.Bytes(), nil
}

// write sends a page that markup returned.
func (s *server) write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding, Cookie")
	if takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// explain calls status, and logs an error of the storage, which the sentence of status does not show.
func (s *server) explain(ctx context.Context, err error) (code int, text string) {
	code, text = status(err)
	if own := (*statusError)(nil); code == http.StatusServiceUnavailable && !errors.As(err, &own) {
		s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "midge: the dashboard cannot read the storage",
			slog.Any("error", err))
	}
	return code, text
}

// fail answers a request with an error: as plain text if it asks for JSON, or else as a page.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, text := s.explain(r.Context(), err)
	if code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		http.Error(w, text, code)
		return
	}
	v := s.view(r)
	v.Page, v.Title, v.Sample = "error", http.StatusText(code), s.sampler.Last()
	if v.Title == "" {
		v.Title = "Request ended"
	}
	v.Bare = !userOf(r.Context()).May(access.Read)
	if v.Bare {
		v.Sample = nil
	}
	v.Broken = code >= http.StatusInternalServerError && r.Method == http.MethodGet
	v.Data = text
	s.render(w, r, code, v)
}

// themes are the themes that a viewer may choose. The empty one follows the system.
var themes = []string{"", "light", "dark"}

const themeCookie = "midge_theme"

// zoneCookie has the name of the time zone that a viewer chose, such as "Europe/Berlin".
const zoneCookie = "midge_zone"

// preferences stores in a cookie the theme or the time zone that a viewer chose, and redirects to the page of
// the form.
func (s *server) preferences(w http.ResponseWriter, r *http.Request) {
	cookie := &http.Cookie{ //nolint:gosec // Secure wherever the dashboard is served so
		Name: themeCookie, Value: r.PostFormValue("theme"), Path: s.cfg.Base + "/",
		MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: overTLS(r),
	}
	err := &statusError{http.StatusBadRequest, "The theme must be light, dark or empty."}
	valid := slices.Contains(themes, cookie.Value)
	if r.PostForm.Has("zone") {
		cookie.Name, cookie.Value = zoneCookie, r.PostFormValue("zone")
		err.text, valid = "The time zone is not known here.", zoneNamed(cookie.Value) != nil
	}
	if !valid {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, cookie)
	http.Redirect(w, r, s.cameFrom(r), http.StatusSeeOther)
}

// zoneNamed returns the time zone with a name, nil if this process does not know it.
func zoneNamed(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil || zone.String() == "Local" { // the zone of this process is nobody's choice
		return nil
	}
	return zone
}

// zoneOf returns the time zone in which the viewer of a request reads moments.
func zoneOf(r *http.Request) *time.Location {
	if c, err := r.Cookie(zoneCookie); err == nil {
		return cmp.Or(zoneNamed(c.Value), time.UTC)
	}
	return time.UTC
}

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return ""
}

// funcs are the functions that templates call.
var funcs = template.FuncMap{
	"number":   func(n any) string { return format.Number(integer(n)) },
	"exact":    func(n any) string { return format.Exact(integer(n)) },
	"duration": format.Duration, "age": format.Age, "moment": format.Moment, "whole": format.Whole,
	"away": format.Away, "rate": format.Rate,
	"percent": format.Percent, "halves": format.Halves, "firstLine": format.FirstLine, "bytes": format.Bytes,
	"count": func(n any, one string) string { return format.Count(integer(n), one) },
	"rfc":   func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) },
	"share": chart.ShareBar, "middle": format.Middle, "oldest": oldest,
	"oldestSeen": oldestSeen, "estimate": format.Estimate,
	"states": func() []stateLook { return looksOf(storage.TaskStates()) }, "exactly": exactly,
	"limit":       words.Limit,
	"outstanding": filter.Outstanding, "sizeClass": sizeClass, "heading": heading, "look": lookOf,
	"word": func(state string) string { return filter.StateWord(storage.State(state)) },
	"glyph": func(state string) string {
		if !storage.State(state).Valid() {
			return ""
		}
		return lookOf(storage.State(state)).Glyph
	},
	"keys": func(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) },
	"args": func(args ...any) []any { return args },
	"name": func(text string) named { return named{text, format.Halves(text)} },
}

// heading returns the text above a column or a card: the word of a state, or another name.
func heading(name string) string {
	word := filter.StateWord(storage.State(name))
	if name == access.PartParams {
		word = "parameters"
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// named is a name that a narrow column cuts in its middle.
type named struct {
	Whole string
	Half  [2]string
}

func integer(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

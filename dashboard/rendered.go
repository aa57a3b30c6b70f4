package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"sync"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard/internal/sampler"
)

// rendered caches pages that depend only on a sample and on the history, which all viewers share. If
// something changes and many browsers fetch such a page at once, it is rendered once.
type rendered struct {
	mu    sync.Mutex
	of    *sampler.Sample
	pages map[pageKey]*renderedPage
}

// pageKey is everything that such a page depends on besides the sample.
type pageKey struct {
	address, theme, zone string
	user                 access.User
	gzip                 bool
}

type renderedPage struct {
	turn chan struct{} // a semaphore: one viewer renders the page for all
	body []byte        // nil until it is rendered; guarded by turn
}

// get returns the page, and calls render if nobody has rendered it yet. A nil page is rendered each time. If
// ctx ends while get waits for another viewer, get returns the cause of ctx.
func (p *renderedPage) get(ctx context.Context, render func() ([]byte, error)) ([]byte, error) {
	if p == nil {
		return render()
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.body != nil {
		return p.body, nil
	}
	body, err := render()
	p.body = body
	return body, err
}

// mostRendered limits the pages that are kept of a sample, and mostAddress the length of an address.
const mostRendered, mostAddress = 100, 500

// page returns the entry for the page that a request asks for, nil if the page is not kept.
func (p *rendered) page(r *http.Request, v *view) *renderedPage {
	address := r.URL.RequestURI()
	if v.Notice != nil || len(address) > mostAddress {
		return nil
	}
	key := pageKey{address: address, theme: v.Theme, zone: v.Zone().String(), user: v.User, gzip: takesGzip(r)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of != v.Sample {
		p.of, p.pages = v.Sample, make(map[pageKey]*renderedPage)
	}
	page := p.pages[key]
	if page == nil && len(p.pages) < mostRendered {
		page = &renderedPage{turn: make(chan struct{}, 1)}
		p.pages[key] = page
	}
	return page
}

// zippers are reused, because each takes a megabyte of memory.
var zippers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed+2) // cannot fail: the level is valid
	return w
}}

// zippedPage compresses a page.
func zippedPage(page []byte) []byte {
	w, _ := zippers.Get().(*gzip.Writer) // the pool has no other type
	defer zippers.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(page) // a write to a buffer cannot fail
	_ = w.Close()
	return b.Bytes()
}

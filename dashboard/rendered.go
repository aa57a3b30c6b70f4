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

// rendered keeps the pages that show one look at the storage and nothing else: where many browsers read such
// a page anew because something changed, it is rendered once.
type rendered struct {
	mu    sync.Mutex
	of    *sampler.Sample
	pages map[pageKey]*renderedPage
}

// pageKey is all that such a page depends on beside the look.
type pageKey struct {
	address, theme string
	user           access.User
	gzip           bool
}

type renderedPage struct {
	turn chan struct{} // holds the right to render: one viewer has the page rendered for all
	body []byte        // nil before; guarded by the turn
}

// get gives the page, which a function renders where nobody had it rendered. A nil page is rendered each
// time. A viewer who leaves waits for no other one.
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

// The bounds of what is kept: pages of a look, and the length of an address.
const mostRendered, mostAddress = 100, 500

// page gives the place of the page of a request, nil where it is not kept.
func (p *rendered) page(r *http.Request, v *view) *renderedPage {
	address := r.URL.RequestURI()
	if v.Notice != nil || len(address) > mostAddress {
		return nil
	}
	key := pageKey{address: address, theme: v.Theme, user: v.User, gzip: takesGzip(r)}
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

// zippers are kept, because each takes a megabyte.
var zippers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed+2) // the level is the package's own
	return w
}}

// zippedPage compresses a page.
func zippedPage(page []byte) []byte {
	w, _ := zippers.Get().(*gzip.Writer) // it holds nothing else
	defer zippers.Put(w)
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(page) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

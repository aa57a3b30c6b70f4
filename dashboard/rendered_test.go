package dashboard

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/midgehq/midge/access"
)

// TestAPageOfALookIsRenderedOnce: for all viewers who may see the same, until the next look.
func TestAPageOfALookIsRenderedOnce(t *testing.T) {
	d, _, ahead := clocked(t)
	s := d.server
	now, err := s.sampler.sample(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ann, bo := access.User{Name: "ann", Role: access.Admin}, access.User{Name: "bo", Role: access.Viewer}
	page := func(path, encoding string, v view) *renderedPage {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", encoding)
		v.Sample = now
		return s.rendered.page(r, &v)
	}
	first := page("/", "gzip", view{User: ann})
	if first == nil || page("/", "gzip", view{User: ann}) != first {
		t.Error("a page is rendered again within a look")
	}
	for what, other := range map[string]*renderedPage{
		"another user": page("/", "gzip", view{User: bo}), "a theme": page("/", "gzip", view{User: ann, Theme: "dark"}),
		"another address": page("/?span=5m", "gzip", view{User: ann}), "no gzip": page("/", "", view{User: ann}),
	} {
		if other == nil || other == first {
			t.Errorf("%s has the same page, or none", what)
		}
	}
	if page("/", "gzip", view{User: ann, Notice: &notice{}}) != nil {
		t.Error("what an act did is told to others")
	}
	renders := 0
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			body, err := first.get(func() ([]byte, error) { renders++; return []byte("page"), nil })
			if err != nil || string(body) != "page" {
				t.Errorf("got %q, %v", body, err)
			}
		})
	}
	all.Wait()
	if renders != 1 {
		t.Errorf("rendered %d times, want once", renders)
	}
	*ahead += 2 * period
	if now, err = s.sampler.sample(t.Context()); err != nil {
		t.Fatal(err)
	}
	if page("/", "gzip", view{User: ann}) == first {
		t.Error("a page outlives its look")
	}
}

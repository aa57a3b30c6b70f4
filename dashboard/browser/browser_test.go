package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/internal/testserver"
)

// browser is the one browser of all tests.
var browser context.Context

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctx, stop, err := openBrowser(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, "the tests need chromium, which tools/need-servers.sh installs:", err)
			return 1
		}
		defer stop()
		browser = ctx //nolint:fatcontext // one browser for all tests
		bulk.PreviewTime = time.Hour
		return m.Run()
	}())
}

// rig is a dashboard on the data of a scene, and its server.
type rig struct {
	t *testing.T
	*scene.Scene

	addr    string
	handler http.Handler
	server  *http.Server
	streams atomic.Int64 // the number of open streams
}

func newRig(t *testing.T, name string) *rig {
	t.Helper()
	return newRigOf(t, name, dashboard.Config{Who: anAdmin})
}

func newRigOf(t *testing.T, name string, cfg dashboard.Config) *rig {
	t.Helper()
	cfg.Name = "production"
	sc, err := scene.Open(t.Context(), name, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	h, err := dashboard.Handler(sc.Store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, Scene: sc, addr: "127.0.0.1:0"}
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/events" {
			r.streams.Add(1)
			defer r.streams.Add(-1)
		}
		h.ServeHTTP(w, req)
	})
	r.start()
	t.Cleanup(r.stop)
	return r
}

// start starts the server. After a stop it has the same address as before.
func (r *rig) start() {
	r.t.Helper()
	var listener net.Listener
	testserver.Await(r.t, "the address is free", func() bool {
		var err error
		listener, err = new(net.ListenConfig).Listen(r.t.Context(), "tcp", r.addr)
		return err == nil
	})
	r.addr = listener.Addr().String()
	server := &http.Server{Handler: r.handler, ReadHeaderTimeout: 5 * time.Second}
	r.server = server
	go func() { _ = server.Serve(listener) }()
}

func (r *rig) stop() { _ = r.server.Close() }

// tab is a tab of the browser. Each of its troubles fails the test.
type tab struct {
	*rig
	ctx context.Context

	mu       sync.Mutex
	troubles []string
	quiet    bool // ignore troubles, because the test expects them
}

// tab opens a page in a new tab.
func (r *rig) tab(path, theme string) *tab {
	r.t.Helper()
	ctx, stop := chromedp.NewContext(browser)
	r.t.Cleanup(stop)
	tb := &tab{rig: r, ctx: ctx}
	if err := chromedp.Do(ctx, enable()); err != nil {
		r.t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, tb.heard); err != nil {
		r.t.Fatal(err)
	}
	tb.open(path, theme, widths[0])
	r.t.Cleanup(tb.check)
	return tb
}

func enable() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		_, err2 := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
		return errors.Join(err, err2)
	})
}

// heard notes an event of the browser that is a trouble: an exception, a logged error or warning, or a
// request to another host.
func (tb *tab) heard(ev any) {
	note := func(text string) {
		tb.mu.Lock()
		defer tb.mu.Unlock()
		if !tb.quiet {
			tb.troubles = append(tb.troubles, text)
		}
	}
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		note(fmt.Sprintf("exception: %+v", ev.ExceptionDetails))
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" || ev.Entry.Level == "warning" {
			note("log: " + ev.Entry.Text + " " + ev.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		at := ev.Request.URL
		if strings.HasPrefix(at, "http") && !strings.HasPrefix(at, "http://"+tb.addr+"/") {
			note("request to another host: " + at)
		}
	}
}

func (tb *tab) check() {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for _, trouble := range tb.troubles {
		tb.t.Error(trouble)
	}
}

func (tb *tab) open(path, theme string, width int64) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, as(theme, width), chromedp.Navigate("http://"+tb.addr+path)); err != nil {
		tb.t.Fatalf("%s: %v", path, err)
	}
}

// visit opens an address of another site.
func (tb *tab) visit(address string) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, chromedp.Navigate(address)); err != nil {
		tb.t.Fatalf("%s: %v", address, err)
	}
}

// eval returns the value of a JavaScript expression.
func eval[T any](tb *tab, code string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](code))
	if err != nil {
		tb.t.Fatalf("%s: %v", code, err)
	}
	return v
}

// patience is how long a tab waits for a page at most. On a busy machine a browser may pause for seconds.
const patience = time.Minute

// sees waits until a JavaScript expression is true.
func (tb *tab) sees(code string) {
	tb.t.Helper()
	tb.until(code, func() bool { return tb.holds(code) })
}

// holds reports whether a JavaScript expression is true. While the browser leaves a page, the evaluation fails.
func (tb *tab) holds(code string) bool {
	is, err := chromedp.Run(tb.ctx, chromedp.Evaluate[bool]("!!("+code+")"))
	return err == nil && is
}

// until waits until a condition holds, which the text describes.
func (tb *tab) until(text string, holds func() bool) {
	tb.t.Helper()
	end := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(end) {
			page, _ := chromedp.Run(tb.ctx, chromedp.Evaluate[string]("location.pathname + '\\n' + document.body.innerText"))
			tb.t.Fatalf("%s did not come true within %v; the page is %.3000s", text, patience, page)
		}
		<-tick.C
	}
}

// click clicks on the first element that a selector finds.
func (tb *tab) click(selector string) {
	tb.t.Helper()
	for {
		err := chromedp.Do(tb.ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil {
			return
		}
		// A live page may replace the element after it was found and before it is clicked.
		if !strings.Contains(err.Error(), "Could not find node with given id") {
			tb.t.Fatalf("click %s: %v", selector, err)
		}
	}
}

// keys presses keys as a keyboard does. A key that the page handles when it is pressed types no character.
func (tb *tab) keys(keys string) {
	tb.t.Helper()
	press := chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		for _, r := range keys {
			events := kb.Encode(r)
			down := *events[0]
			for _, e := range events {
				if e.Type == kb.KeyChar {
					down.Type, down.Text, down.UnmodifiedText = kb.KeyDown, e.Text, e.UnmodifiedText
				}
			}
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, down); err != nil {
				return err
			}
			if _, err := cdp.Call(ctx, t, input.DispatchKeyEvent, *events[len(events)-1]); err != nil {
				return err
			}
		}
		return nil
	})
	if err := chromedp.Do(tb.ctx, press); err != nil {
		tb.t.Fatal(err)
	}
}

// shows waits until the page shows a text.
func (tb *tab) shows(text string) {
	tb.t.Helper()
	tb.sees(fmt.Sprintf(`document.body.innerText.replaceAll('\u00a0', ' ').includes(%q)`, text))
}

// live waits until the page is live. The test fails if the page shows that it has lost its stream.
func (tb *tab) live() {
	tb.t.Helper()
	tb.sees(`['live', 'lost'].includes(document.querySelector('#live').dataset.is)`)
	if is := eval[string](tb, `document.querySelector('#live').textContent`); is != "live" {
		tb.t.Errorf("the page says %q before it is live", is)
	}
}

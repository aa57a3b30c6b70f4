// Browser draws the pages of the dashboard in a browser, and puts the pictures of a page together on one
// sheet. The tests of this package test the pages in the same browser.
//
//	go -C dashboard/browser run . -out /tmp/shots            every page of every scene
//	go -C dashboard/browser run . -scene night -page overview
//	go -C dashboard/browser run . -scene night -page peers
//
// The program in the folder peers serves asynqmon, River UI and bull-board on similar data. The dashboards
// that it can run are drawn beside midge's.
//
// Browser needs chromium or chrome in the path, and prefers chromium-headless-shell.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/fingerprint"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// widths are the widths of the window at which pages are drawn, in pixels.
var widths = []int64{1440, 1024, 768, 360}

var themes = []string{"light", "dark"}

// height is the height of the window. A longer page is drawn as a whole, up to the height longest.
const height, longest = 900, 2600

func main() {
	out := flag.String("out", filepath.Join(os.TempDir(), "midge-shots"), "folder for the pictures")
	scenes := flag.String("scene", strings.Join(scene.Names, ","), "which scenes")
	only := flag.String("page", "", "pages, by their names and separated by commas, or peers; empty is all")
	single := flag.Bool("single", false, "keep each picture beside the sheets")
	wait := flag.Duration("wait", 0, "how long a scene is watched before: forecasts take 10 s")
	tasks := flag.Int("tasks", 1_000_000, "tasks of the scene million")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := drawAll(ctx, *out, strings.Split(*scenes, ","), *only, *single, *tasks, *wait)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}

func drawAll(
	ctx context.Context, out string, scenes []string, only string, single bool, tasks int, wait time.Duration,
) error {
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	ctx, stop, err := openBrowser(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, name := range scenes {
		sc, err := scene.Play(ctx, name, tasks)
		if err != nil {
			return err
		}
		site, err := serveScene(ctx, sc, dashboard.Config{Name: "production", Who: anAdmin})
		if err != nil {
			return err
		}
		if err := watch(ctx, site.url, wait); err != nil {
			return err
		}
		for _, p := range pagesOf(ctx, name, sc) {
			if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
				continue
			}
			if err := drawPage(ctx, site.url+p.path, filepath.Join(out, name+"-"+p.name), single); err != nil {
				return fmt.Errorf("%s of %s: %w", p.name, name, err)
			}
			fmt.Println(name, p.name)
		}
		if (only == "" || only == peersPage) && slices.Contains(likeScenes, name) {
			if err := drawPeers(ctx, midgeOf(site.url, pagesOf(ctx, name, sc)), name, out, single); err != nil {
				return err
			}
		}
		site.close()
	}
	return nil
}

// watch shows a page for the time wait, so that the dashboard has figures of that time.
func watch(ctx context.Context, url string, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	err := chromedp.Do(ctx, chromedp.Navigate(url))
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return err
}

// site is a dashboard that is being served.
type site struct {
	url   string
	close func()
}

// anAdmin takes each request for that of an admin.
func anAdmin(*http.Request) (access.User, bool) {
	return access.User{Name: "local", Role: access.Admin}, true
}

func serveScene(ctx context.Context, sc *scene.Scene, cfg dashboard.Config) (*site, error) {
	h, err := dashboard.Handler(sc.Store, cfg)
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	return &site{"http://" + listener.Addr().String(), func() { _ = server.Close(); <-served }}, nil
}

// openBrowser starts a browser without a window. The caller must call the function that it returns.
func openBrowser(ctx context.Context) (context.Context, func(), error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.Flag("hide-scrollbars", true),
		chromedp.NoSandbox, chromedp.Flag("font-render-hinting", "none"))
	// The headless shell is the same engine without windows, and takes 40 % less processor time.
	if shell, err := exec.LookPath("chromium-headless-shell"); err == nil {
		options = append(options, chromedp.ExecPath(shell))
	}
	ctx, stopAll := chromedp.NewExecAllocator(ctx, options...)
	ctx, stop := chromedp.NewContext(ctx)
	both := func() { stop(); stopAll() }
	if err := chromedp.Do(ctx); err != nil {
		both()
		return nil, nil, err
	}
	return ctx, both, nil
}

// drawPage draws a page at all widths and in both themes, on one sheet.
func drawPage(ctx context.Context, url, to string, single bool) error {
	var rows [][]image.Image
	for _, theme := range themes {
		var row []image.Image
		for _, width := range widths {
			picture, err := shot(ctx, url, theme, width)
			if err != nil {
				return err
			}
			if single {
				if err := os.WriteFile(fmt.Sprintf("%s-%d-%s.png", to, width, theme), picture, 0o600); err != nil {
					return err
				}
			}
			decoded, err := png.Decode(bytes.NewReader(picture))
			if err != nil {
				return err
			}
			row = append(row, decoded)
		}
		rows = append(rows, row)
	}
	return writeSheet(to+".png", rows)
}

// as sets the width and the theme in which the browser shows pages.
func as(theme string, width int64) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
		})
		if err != nil {
			return err
		}
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			// Without motion, a number that changes is not tinted while its contrast is measured.
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	})
}

// shot returns a picture of a page as PNG.
func shot(ctx context.Context, url, theme string, width int64) (picture []byte, err error) {
	if err := chromedp.Do(ctx, as(theme, width), chromedp.Navigate(url)); err != nil {
		return nil, err
	}
	if err := settled(ctx); err != nil {
		return nil, err
	}
	tall, err := chromedp.Run(ctx, chromedp.Evaluate[float64](
		`Math.max(document.documentElement.scrollHeight, document.body.scrollHeight)`))
	if err != nil {
		return nil, err
	}
	return chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		beyond := true
		result, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Clip: &page.Viewport{
				Width: float64(width), Height: min(max(tall, height), longest), Scale: 1,
			},
			CaptureBeyondViewport: &beyond,
		})
		return result.Data, err
	})
}

// settled waits until the page is live, for at most two seconds. A page without a stream is drawn as it is.
func settled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](
			`document.querySelector('#live')?.dataset.is !== 'polling'`))
		if err != nil || is {
			return err
		}
		<-tick.C
	}
	return nil
}

// writeSheet writes a sheet of pictures at half their size, as PNG.
func writeSheet(name string, rows [][]image.Image) (err error) {
	const gap = 16
	var width, high int
	for _, row := range rows {
		w, h := gap, 0
		for _, p := range row {
			w, h = w+p.Bounds().Dx()/2+gap, max(h, p.Bounds().Dy()/2)
		}
		width, high = max(width, w), high+h+gap
	}
	sheet := image.NewRGBA(image.Rect(0, 0, width, high+gap))
	draw.Draw(sheet, sheet.Bounds(), image.NewUniform(color.Gray{Y: 128}), image.Point{}, draw.Src)
	y := gap
	for _, row := range rows {
		x, h := gap, 0
		for _, p := range row {
			halve(sheet, x, y, p)
			x, h = x+p.Bounds().Dx()/2+gap, max(h, p.Bounds().Dy()/2)
		}
		y += h + gap
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return png.Encode(f, sheet)
}

// halve draws a picture at half its size.
func halve(to *image.RGBA, x, y int, p image.Image) {
	b := p.Bounds()
	for j := range b.Dy() / 2 {
		for i := range b.Dx() / 2 {
			var sum [3]uint32
			for _, at := range [4][2]int{{0, 0}, {1, 0}, {0, 1}, {1, 1}} {
				r, g, bl, _ := p.At(b.Min.X+2*i+at[0], b.Min.Y+2*j+at[1]).RGBA()
				sum[0], sum[1], sum[2] = sum[0]+r, sum[1]+g, sum[2]+bl
			}
			to.SetRGBA(x+i, y+j, color.RGBA{uint8(sum[0] >> 10), uint8(sum[1] >> 10), uint8(sum[2] >> 10), 255})
		}
	}
}

// named is the name and the path of a page.
type named struct{ name, path string }

// pagesOf returns the pages of a scene. A page that is the same in all scenes is drawn only for the night.
func pagesOf(ctx context.Context, name string, sc *scene.Scene) []named {
	pages := []named{
		{"overview", "/"},
		{"queues", "/queues"},
		{"dead", "/dead"},
		{"metrics", "/metrics"},
		{"audit", "/audit"},
		{"schedules", "/schedules"},
		{"runners", "/runners"},
	}
	names, err := sc.Store.Queues(ctx, storage.QueuesQuery{})
	if err != nil || len(sc.Runners) == 0 {
		return pages
	}
	pages = append(
		pages, named{"tasks", "/tasks"}, named{"tasks-dead", "/tasks?state=dead"},
		named{"filter", "/tasks?filter=error:refused&state=dead"}, named{"search", "/search?q=mail"},
		named{"runner", "/runners/" + sc.Runners[0].ID},
	)
	if name == "night" {
		pages = append(
			pages, named{"cause-gone", "/dead?cause=zz"}, named{"error", "/queues/none"},
			named{"no-hit", "/tasks?filter=kind:none"}, named{"no-find", "/search?q=none-such"},
		)
	}
	for _, name := range names.Names {
		if name == "payments" || len(name) > 100 {
			pages = append(pages, named{"queue", "/queues/" + name},
				named{"ask-pause", "/action?do=pause&queue=" + name},
				named{"ask-limit", "/action?do=limit&queue=" + name},
				named{"ask-pause-partition", "/action?do=pause-partition&partition=acme&queue=" + name},
				named{"enqueue", "/queues/" + name + "/add?kind=send_welcome"})
			break
		}
	}
	for _, state := range []storage.State{storage.Dead, storage.Pending, storage.Waiting} {
		pages = append(pages, taskPages(ctx, sc, names.Names, state)...)
	}
	return pages
}

// taskPages returns the pages of the first task in a state, and none if there is no such task.
func taskPages(ctx context.Context, sc *scene.Scene, queues []string, state storage.State) []named {
	for _, queue := range queues {
		page, err := sc.Store.Tasks(ctx, storage.TasksQuery{Queue: queue, State: state, Limit: 1})
		if err != nil || len(page.Tasks) == 0 {
			continue
		}
		ref := page.Tasks[0].Ref.String()
		pages := []named{{"task-" + string(state), "/r/" + ref}}
		if state == storage.Dead {
			cause := fingerprint.Of(page.Tasks[0]).ID
			pages = append(pages, named{"edit", "/edit?ref=" + ref}, named{"cause", "/dead?cause=" + cause},
				named{"ask-requeue", "/action?do=requeue&ref=" + ref},
				named{"ask-delete", "/action?do=delete&all=1&state=dead&filter=cause:" + cause})
		}
		return pages
	}
	return nil
}

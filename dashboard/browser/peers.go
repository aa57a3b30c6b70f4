package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// views are the kinds of view in which midge is drawn beside its peers, with the paths of midge's pages. The
// path of a task is looked up.
var views = []named{
	{"overview", "/"},
	{"queues", "/queues"},
	{"tasks", "/tasks?queue=mail&state=waiting"},
	{"task", ""},
	{"dead", "/tasks?state=dead"},
	{"groups", "/dead"},
	{"schedules", "/schedules"},
	{"runners", "/runners"},
}

// beside are the widths at which midge is drawn beside its peers.
var beside = []int64{1440, 360}

// likeScenes are the scenes for which the peers have similar data.
var likeScenes = []string{"calm", "night"}

// peersPage is the name of the sheets with the peers in the flag -page.
const peersPage = "peers"

// peer is a dashboard. Pages has the paths of its pages, by the kind of view.
type peer struct {
	Name  string            `json:"name"`
	URL   string            `json:"url"`
	Pages map[string]string `json:"pages"`
}

// drawPeers draws midge and its peers side by side, on a sheet for each kind of view and each width. It
// prints which peers it leaves out.
func drawPeers(ctx context.Context, midge peer, scene, out string, single bool) error {
	peers, stop, err := startPeers(ctx, scene)
	if err != nil {
		fmt.Printf("%s peers: left out, as they cannot be run: %v\n", scene, err)
		return nil
	}
	defer stop()
	peers = append([]peer{midge}, peers...)
	for _, view := range views {
		for _, width := range beside {
			to := filepath.Join(out, fmt.Sprintf("%s-peers-%s-%d", scene, view.name, width))
			// In a new browser context, a page has no memory of another width.
			fresh, forget := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
			err := drawBeside(fresh, peers, view.name, width, to, single)
			forget()
			if err != nil {
				return fmt.Errorf("%s of the peers: %w", view.name, err)
			}
		}
		fmt.Println(scene, "peers", view.name+":", columns(peers, view.name))
	}
	return nil
}

// columns describes the columns of a sheet.
func columns(peers []peer, view string) string {
	var names []string
	for _, p := range peers {
		if p.Pages[view] == "" {
			names = append(names, p.Name+" (has none)")
			continue
		}
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// midgeOf returns midge's own dashboard, with a page for each kind of view.
func midgeOf(url string, pages []named) peer {
	p := peer{Name: "midge", URL: url, Pages: map[string]string{}}
	for _, view := range views {
		p.Pages[view.name] = view.path
	}
	for _, shown := range pages {
		// The night shows a dead task, and the calm shows a running one.
		if shown.name == "task-dead" || shown.name == "task-pending" && p.Pages["task"] == "" {
			p.Pages["task"] = shown.path
		}
	}
	return p
}

// drawBeside draws one kind of view of all dashboards at a width: a row for each theme, and a column for each
// dashboard.
func drawBeside(ctx context.Context, peers []peer, view string, width int64, to string, single bool) error {
	var rows [][]image.Image
	for _, theme := range themes {
		var row []image.Image
		for _, p := range peers {
			path := p.Pages[view]
			if path == "" {
				row = append(row, image.NewGray(image.Rect(0, 0, int(width), height)))
				continue
			}
			picture, err := firstScreen(ctx, p.URL+path, theme, width)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			if single {
				if err := os.WriteFile(fmt.Sprintf("%s-%s-%s.png", to, p.Name, theme), picture, 0o600); err != nil {
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

// firstScreen returns a picture of the part of a page that the window shows. Pages of other projects fit
// themselves to the window, and a picture of a larger part would start their charts anew.
func firstScreen(ctx context.Context, url, theme string, width int64) ([]byte, error) {
	err := chromedp.Do(ctx, as(theme, width), chromedp.Navigate(url), chromedp.Func(drawn))
	if err != nil {
		return nil, err
	}
	return chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		result, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{})
		return result.Data, err
	})
}

// startPeers runs the program in the folder peers. It is a module of its own, and go run downloads the
// modules that it needs. startPeers returns the peers that are ready, and a function that stops the program.
func startPeers(ctx context.Context, scene string) ([]peer, func(), error) {
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-scene", scene) //nolint:gosec // one of likeScenes
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = "peers", &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		_ = in.Close() // the program ends when its input ends
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}
	var told struct {
		Peers []peer            `json:"peers"`
		Left  map[string]string `json:"left"`
	}
	if err := json.NewDecoder(out).Decode(&told); err != nil {
		stop()
		return nil, nil, errors.Join(err, errors.New(said.String()))
	}
	for _, name := range slices.Sorted(maps.Keys(told.Left)) {
		fmt.Printf("%s peers: %s is left out: %s\n", scene, name, told.Left[name])
	}
	return told.Peers, stop, nil
}

// drawn waits until a page that a script draws, charts included, has not changed for 0.8 s. It waits for 4 s
// at most.
func drawn(ctx context.Context, t *chromedp.Target) error {
	const quiet, most = 800 * time.Millisecond, 4 * time.Second
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began, since, before := time.Now(), time.Now(), ""
	for time.Since(since) < quiet && time.Since(began) < most {
		now, err := chromedp.Evaluate[string](
			`document.readyState + document.getAnimations().length + document.body?.innerHTML`)(ctx, t)
		if err != nil {
			return err
		}
		if now != before {
			since, before = time.Now(), now
		}
		<-tick.C
	}
	return nil
}

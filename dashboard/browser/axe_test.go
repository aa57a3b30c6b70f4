package main

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeVersion is the version of axe-core, which tools/need-axe.sh fetches. axeSum is the SHA-512 of its
// axe.min.js.
const axeVersion = "4.14.1"

const axeSum = "e63e659f9806d7ae5bd40899043b0871a5062c5442b01b3f1a3edf5eaf50bf5c" +
	"3a7104a72463293b4ad1b77c661a0d4e40e850dec89de9d6ece70a8c13a9af17"

// axe returns the script of axe-core. If the script is not installed, the test is skipped. If
// MIDGE_TEST_SERVERS shows that everything is installed, the test fails.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(cache, "midge", "axe-core-"+axeVersion+".js"))
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("MIDGE_TEST_SERVERS") == "" {
		t.Skip("the test needs axe-core, which tools/need-axe.sh fetches")
	}
	if err != nil {
		t.Fatalf("%v; tools/need-axe.sh fetches it", err)
	}
	if sum := sha512.Sum512(script); hex.EncodeToString(sum[:]) != axeSum {
		t.Fatalf("axe-core has the sum %x, want %s; remove it, and tools/need-axe.sh fetches it anew", sum, axeSum)
	}
	return string(script)
}

// wcag selects the rules of WCAG 2.2, levels A and AA.
const wcag = `['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']`

// judge returns the elements of a page that break the rules. The script comes by the protocol of the
// browser's developer tools, because the page permits no script but its own.
func (tb *tab) judge(script, only string) []string {
	tb.t.Helper()
	judged := script + `; axe.run(document, {runOnly: ` + only + `, resultTypes: ['violations'], preload: false}).then(result =>
		JSON.stringify(result.violations.flatMap(v => v.nodes.map(n => v.id + ' at ' + n.target.join(' ') + ': ' + n.failureSummary.replaceAll('\n', ' ') + ' ' + n.html.slice(0, 160)))))`
	text, err := chromedp.Run(tb.ctx, func(ctx context.Context, t *chromedp.Target) (string, error) {
		result, err := cdp.Call(ctx, t, runtime.Evaluate, runtime.EvaluateParams{Expression: judged, AwaitPromise: new(true), ReturnByValue: new(true)})
		if err != nil {
			return "", err
		}
		if result.ExceptionDetails != nil {
			return "", fmt.Errorf("axe-core: %+v", result.ExceptionDetails)
		}
		var text string
		return text, json.Unmarshal(result.Result.Value, &text)
	})
	var found []string
	if err == nil {
		err = json.Unmarshal([]byte(text), &found)
	}
	if err != nil {
		tb.t.Fatal(err)
	}
	return found
}

// TestDialogsAreAccessible checks the elements that TestEachPage does not see: a dialog, and the suggestions
// of the search.
func TestDialogsAreAccessible(t *testing.T) {
	t.Parallel()
	script := axe(t)
	tb := newRig(t, "night").tab("/queues/mail", "light")
	tb.live()
	tb.click(`[data-hotkey="p"]`)
	tb.sees(`document.querySelector('dialog[open] .buttons button')`)
	for _, problem := range tb.judge(script, wcag) {
		t.Errorf("a dialog: %s", problem)
	}
	tb.open("/", "light", 1440)
	tb.live()
	tb.keys("/")
	tb.keys("mail")
	tb.sees(`document.querySelector('#hits [role=option]')`)
	for _, problem := range tb.judge(script, wcag) {
		t.Errorf("suggestions: %s", problem)
	}
}

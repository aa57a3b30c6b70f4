package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
)

// show makes the requests of the demo. The last mail is still being sent when it
// returns.
func show(ctx context.Context, base string, log *zap.Logger) error {
	var task string
	for _, to := range []string{"ann", "ann", "bob"} {
		text, err := request(ctx, http.MethodPost, base+"/welcome", url.Values{"to": {to}})
		if err != nil {
			return err
		}
		log.Info("demo: POST /welcome to=" + to + ": " + text)
		var accepted accepted
		if err := json.Unmarshal([]byte(text), &accepted); err != nil {
			return fmt.Errorf("read the answer %q: %w", text, err)
		}
		task = accepted.Task
	}
	if err := awaitRunning(ctx, base); err != nil {
		return err
	}
	for _, path := range []string{"/tasks/" + task, "/stats"} {
		text, err := request(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return err
		}
		log.Info("demo: GET " + path + ": " + text)
	}
	return nil
}

// awaitRunning waits until a mail is being sent.
func awaitRunning(ctx context.Context, base string) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		text, err := request(ctx, http.MethodGet, base+"/stats", nil)
		if err != nil {
			return err
		}
		var stats struct{ Running int }
		if err := json.Unmarshal([]byte(text), &stats); err != nil {
			return fmt.Errorf("read the answer %q: %w", text, err)
		}
		if stats.Running > 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func request(ctx context.Context, method, target string, form url.Values) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(form.Encode()))
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, target, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, target, err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", method, target, err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("%s %s: %s: %s", method, target, res.Status, body)
	}
	return strings.TrimSpace(string(body)), nil
}

package callback

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// maxErrorBody bounds the part of an answer that is in the error of an attempt, in bytes.
const maxErrorBody = 1 << 10

// These bound the time that Retry-After asks for. The shortest one keeps a receiver that always answers with
// "now" from being asked without a pause.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 24 * time.Hour
)

// refusal returns the verdict on an answer that is no success.
func (e *endpoint) refusal(answer *http.Response) error {
	err := e.statusError(answer)
	wait, asked := retryAfter(answer.Header.Get("Retry-After"), time.Now())
	switch status := answer.StatusCode; {
	case status == http.StatusTooManyRequests && asked:
		return errors.Join(err, midge.Throttle(wait))
	case status == http.StatusServiceUnavailable && asked:
		return midge.RetryIn(wait, err)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		return err
	case status/100 == 4:
		return midge.Discard(err)
	}
	return err
}

// statusError returns the error for a status, with the beginning of the body. It names the host of a
// redirect, but no more of its URL, which may hold a secret.
func (e *endpoint) statusError(answer *http.Response) error {
	text := strconv.Itoa(answer.StatusCode)
	if name := http.StatusText(answer.StatusCode); name != "" {
		text += " " + name
	}
	if answer.StatusCode/100 == 3 {
		to := "elsewhere"
		if u, err := url.Parse(answer.Header.Get("Location")); err == nil && u.Host != "" {
			to = "to " + storage.PrintableText(u.Host, storage.MaxName)
		}
		text += ", a redirect " + to + ", which is not followed"
	}
	var body []byte
	cut := false
	if answer.StatusCode != http.StatusSwitchingProtocols { // after which no context ends the connection
		var err error // if the body breaks off, the status is enough
		body, err = io.ReadAll(io.LimitReader(answer.Body, maxErrorBody+1))
		cut = err != nil || len(body) > maxErrorBody
	}
	if shown := bytes.TrimSpace(body); len(shown) > 0 {
		text += ": " + storage.PrintableText(string(shown), maxErrorBody)
		if cut && !strings.HasSuffix(text, "…") {
			text += "…"
		}
	}
	return fmt.Errorf("%s answered %s", e.host, text)
}

// retryAfter reads the header Retry-After. asked is false if there is none, or it cannot be read.
func retryAfter(text string, now time.Time) (wait time.Duration, asked bool) {
	text = strings.TrimSpace(text)
	seconds, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err == nil || errors.Is(err, strconv.ErrRange):
		wait = time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	default:
		at, err := http.ParseTime(text)
		if err != nil {
			return 0, false
		}
		wait = at.Sub(now)
	}
	return min(max(wait, minRetryAfter), maxRetryAfter), true
}

// keep sets the body of an answer as the result of the task, or counts it as left out.
func (e *endpoint) keep(ctx context.Context, job midge.RawJob, body []byte) {
	why := "it is too large"
	if len(body) <= e.most {
		if body = bytes.TrimSpace(body); len(body) == 0 {
			return
		}
		body = bytes.ToValidUTF8(body, []byte("\ufffd"))
		if midge.SetResult(ctx, resultOf(job.Encoding, body)) == nil {
			return
		}
		why = "it cannot be stored"
	}
	n := e.leftOut.Add(1)
	if n&(n-1) != 0 { // the lines about many such answers are few
		return
	}
	log := e.log
	if log == nil {
		log = slog.Default()
	}
	log.WarnContext(ctx, "a callback has no result, because the body of the answer was left out: "+why,
		"kind", job.Kind, "host", e.host, "left_out", n, "most_bytes", e.most)
}

// resultOf returns a body as a value that an encoding can hold: the JSON that it is, or else its text.
func resultOf(encoding midge.Encoding, body []byte) any {
	if json.Valid(body) {
		if encoding == midge.JSON {
			return json.RawMessage(body)
		}
		in := json.NewDecoder(bytes.NewReader(body))
		in.UseNumber()
		var v any
		if in.Decode(&v) == nil {
			if v, err := numbered(v); err == nil {
				return v
			}
		}
	}
	return string(body)
}

// numbered returns a decoded value whose numbers are integers if they were written as integers, and floats
// otherwise. Integers keep all their digits so: the error is that of an integer which 64 bits do not hold.
func numbered(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case map[string]any:
		for name, one := range v {
			if v[name], err = numbered(one); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, one := range v {
			if v[i], err = numbered(one); err != nil {
				return nil, err
			}
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n, nil
		} else if !strings.ContainsAny(v.String(), ".eE") {
			return nil, err
		}
		return v.Float64()
	}
	return v, nil
}

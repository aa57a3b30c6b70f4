package callback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// run makes an attempt of a task: it waits for its turn at the host, posts the parameters, and judges the
// answer.
func (e *endpoint) run(ctx context.Context, job midge.RawJob) error {
	body, err := job.JSON()
	if err != nil {
		return err
	}
	select {
	case e.places <- struct{}{}:
		defer func() { <-e.places }()
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn at %s: %w", e.host, context.Cause(ctx))
	}
	limited, stop := context.WithTimeout(ctx, e.timeout)
	defer stop()
	post, err := http.NewRequestWithContext(limited, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: the request cannot be made", e.host)
	}
	if user := post.URL.User; user != nil {
		password, _ := user.Password()
		post.SetBasicAuth(user.Username(), password)
	}
	if err := e.head(ctx, post.Header, body); err != nil {
		return err
	}
	answer, err := e.client.RoundTrip(post)
	if err != nil {
		return e.broken(ctx, limited, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return e.refusal(answer)
	}
	if e.most == midge.None {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, int64(e.most)+1))
	if err != nil {
		return e.broken(ctx, limited, err)
	}
	e.keep(ctx, job, text)
	return nil
}

// head sets the headers of a request.
func (e *endpoint) head(ctx context.Context, h http.Header, body []byte) error {
	info, _ := midge.Current(ctx)
	for _, name := range e.headers {
		value, ok := info.Headers[name]
		if !ok {
			continue
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return midge.Discard(storage.Invalid("header "+name+" of the task", "with a control character", "none"))
		}
		h.Set(name, value)
	}
	id := strings.ReplaceAll(info.IdempotencyKey, ".", "~")
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "midge")
	h.Set("Midge-Kind", info.Kind)
	h.Set("Midge-Attempt", strconv.Itoa(info.Attempt))
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", timestamp)
	if len(e.keys) > 0 {
		h.Set("Webhook-Signature", signature(e.keys, id, timestamp, body))
	}
	return nil
}

// broken returns the error of a request without a whole answer. limited is the context of the request, and
// ctx that of the job.
func (e *endpoint) broken(ctx, limited context.Context, err error) error {
	var refused *refusedError
	switch {
	case ctx.Err() != nil: // the cause decides whether the attempt is charged
		return fmt.Errorf("%s: %w", e.host, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("%s: no whole answer after %v", e.host, e.timeout)
	case errors.As(err, &refused):
		return fmt.Errorf("%s resolves to %w", e.host, refused)
	}
	// The receiver decides how long the text is, which can have a line of the answer, or names of a certificate.
	return fmt.Errorf("%s: %s", e.host, storage.PrintableText(err.Error(), maxErrorBody))
}

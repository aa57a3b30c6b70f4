// Package webhook posts JSON to an address that a user has chosen. The address may hold a secret, so no error
// shows more of it than its host.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/outbound"
	"github.com/midgehq/midge/storage"
)

// postTime bounds one post.
const postTime = 10 * time.Second

// Hook is an address to which JSON is posted.
type Hook struct {
	url    url.URL
	client http.Client
}

// New returns the hook for a URL. Only https is accepted. Each connection is checked for the address to which
// the host then resolves: it must not be an address of this machine or link, or that of a cloud's
// credentials. Redirects are not followed, and the proxies of the environment are not used, because neither
// would be checked.
func New(text string) (*Hook, error) {
	const want = "a URL that begins with https:// and has a host"
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		return nil, storage.Invalid("URL of the webhook", "***", want)
	}
	return &Hook{url: *u, client: http.Client{
		Timeout:       postTime,
		Transport:     outbound.NewTransport(permitted, nil),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// String returns the URL without its path, its query and its user.
func (h *Hook) String() string { return "https://" + h.url.Host + "/***" }

// Post posts JSON. Any status but 2xx is an error.
func (h *Hook) Post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: the request cannot be made", h)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "midge")
	answer, err := h.client.Do(r)
	if err != nil {
		if whole, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
			err = whole.Err
		}
		return fmt.Errorf("%s: %w", h, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %d", h, answer.StatusCode)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 1<<16) // which the time of the client does not end after status 101
	return nil
}

// permitted returns an error for an address to which nothing may be posted. Private addresses are permitted,
// because the chats of many companies are inside their networks.
func permitted(ip netip.Addr) error {
	if c := outbound.ClassOf(ip); c != outbound.Public && c != outbound.Private {
		return fmt.Errorf("%s is %s", ip, c)
	}
	return nil
}

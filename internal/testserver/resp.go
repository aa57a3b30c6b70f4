package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// dialLimit bounds a connection attempt, doLimit a whole call of Do.
const (
	dialLimit = 2 * time.Second
	doLimit   = 5 * time.Second
)

// Do sends one command to the Redis at addr over a connection of its own. It returns
// the reply as text: each element of an array on a line of its own, null as an empty
// line, and an error reply as an error.
func Do(addr string, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, dialLimit)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(doLimit)); err != nil {
		return "", err
	}
	if _, err := conn.Write(request(args...)); err != nil {
		return "", err
	}
	var got []byte
	chunk := make([]byte, chunkSize)
	for {
		n, err := conn.Read(chunk)
		got = append(got, chunk[:n]...)
		if size, ok := frame(got); !ok {
			return "", fmt.Errorf("testserver: %s answers %q, which is not RESP", addr, got)
		} else if size > 0 {
			return replyText(got[:size])
		}
		if err != nil {
			return "", err
		}
	}
}

// request encodes a command as an array of bulk strings.
func request(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// command returns the name of a framed request in capitals, or "" if the request has no
// name.
func command(request []byte) string {
	if len(request) == 0 || request[0] != '*' {
		name, _, _ := bytes.Cut(bytes.TrimSpace(request), []byte(" "))
		return strings.ToUpper(string(name))
	}
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	if len(parts) < 4 {
		return ""
	}
	return strings.ToUpper(string(parts[2]))
}

// frame returns the size in bytes of the RESP value, of version 2 or 3, at the head of
// b, or 0 while the value is incomplete. ok is false if b is not RESP. frame never
// reads inside strings, so it is cheap to measure a long value again.
func frame(b []byte) (size int, ok bool) {
	at := 0
	for wanted := 1; wanted > 0; wanted-- {
		if at == len(b) {
			return 0, true
		}
		if !strings.ContainsRune("+-:$*_#,(!=%~>|", rune(b[at])) {
			return 0, false
		}
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			return 0, true
		}
		bytesMore, valuesMore, ok := header(b[at], b[at+1:at+end])
		if !ok {
			return 0, false
		}
		at += end + 2 + bytesMore
		wanted += valuesMore
		if at > len(b) {
			return 0, true
		}
	}
	return at, true
}

// maxLength is the longest string, and the largest aggregate, that Redis sends.
const maxLength = 512 << 20

// header returns how many further bytes and how many further values follow the first
// line of a value of the given kind. ok is false if the line is malformed.
func header(kind byte, line []byte) (bytesMore, valuesMore int, ok bool) {
	if strings.IndexByte("$!=*~>%|", kind) < 0 {
		return 0, 0, true
	}
	n, err := strconv.Atoi(string(line))
	if err != nil || n < -1 || n > maxLength {
		return 0, 0, false
	}
	switch {
	case n == -1:
		return 0, 0, true
	case kind == '$' || kind == '!' || kind == '=':
		return n + 2, 0, true
	case kind == '%':
		return 0, 2 * n, true
	case kind == '|': // attributes precede the value that they belong to
		return 0, 2*n + 1, true
	}
	return 0, n, true
}

// replyText returns a framed reply of RESP 2 as text, as [Do] describes.
func replyText(b []byte) (string, error) {
	var lines []string
	for len(b) > 0 {
		head, rest, _ := bytes.Cut(b[1:], []byte("\r\n"))
		switch b[0] {
		case '-':
			return "", errors.New(string(head))
		case '$':
			n, _ := strconv.Atoi(string(head))
			if n < 0 {
				lines = append(lines, "")
				break
			}
			lines = append(lines, string(rest[:n]))
			rest = rest[n+2:]
		case '*':
		default:
			lines = append(lines, string(head))
		}
		b = rest
	}
	return strings.Join(lines, "\n"), nil
}

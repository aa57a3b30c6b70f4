package testserver

import (
	"bytes"
	"encoding/binary"
)

// wire is the state of the protocol that a link carries. The link holds its lock during a call
// of sent or unasked. request and reply are called without the lock, each by only one of the
// link's two goroutines.
type wire interface {
	// request and reply measure the command or reply at the head of b: they return its size in
	// bytes, or 0 while it is incomplete. ok is false if b is not of the protocol.
	request(b []byte) (size int, ok bool)
	reply(b []byte) (size int, ok bool)
	// sent records a command. It returns the bytes that faults are matched against, nil if no
	// fault may strike the command, and whether the server will reply to it.
	sent(request []byte) (shown []byte, answered bool)
	// unasked reports whether a message of the server answers no command.
	unasked(reply []byte) bool
}

// resp is the protocol of Redis.
type resp struct{ subscribed bool }

func (*resp) request(b []byte) (int, bool) { return frame(b) }
func (*resp) reply(b []byte) (int, bool)   { return frame(b) }

func (r *resp) sent(request []byte) ([]byte, bool) {
	switch command(request) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		r.subscribed = true
	}
	return request, !r.subscribed
}

func (r *resp) unasked(reply []byte) bool { return reply[0] == '>' && !r.subscribed }

// postgres is the protocol of PostgreSQL, without TLS and passwords. A command consists of the
// messages that a client sends until it waits for ReadyForQuery, and a reply of the messages
// up to ReadyForQuery. The rows of a copy are a command without a reply of its own: the reply
// to the copy statement answers them. Faults are matched against the SQL that a command
// executes, even if an earlier command prepared it.
type postgres struct {
	begun bool
	texts map[string][]byte // SQL of prepared statements by name
}

const (
	startupHead   = 8 // length and code
	messageHead   = 5 // type and length
	protocolMajor = 3
)

func (p *postgres) request(b []byte) (int, bool) {
	if !p.begun {
		if len(b) < startupHead {
			return 0, true
		}
		size := int(binary.BigEndian.Uint32(b))
		if size < startupHead || size > maxLength {
			return 0, false
		}
		return fitted(size, b), true
	}
	return upTo(b, func(message []byte) bool {
		switch message[0] {
		case 'Q', 'S', 'X', 'p', 'c', 'f': // the last two end the rows of a copy
			return true
		}
		return false
	})
}

func (*postgres) reply(b []byte) (int, bool) {
	first := true
	return upTo(b, func(message []byte) bool {
		// Either a notification, which comes between replies, or the message that the server is
		// ready for the rows of a copy.
		alone := first && (message[0] == 'A' || message[0] == 'G')
		first = false
		fatal := message[0] == 'E' && (bytes.Contains(message, []byte("\x00VFATAL\x00")) ||
			bytes.Contains(message, []byte("\x00VPANIC\x00"))) // the server closes the connection after it
		return alone || fatal || message[0] == 'Z'
	})
}

func (p *postgres) sent(request []byte) (shown []byte, answered bool) {
	if !p.begun {
		p.begun, p.texts = true, make(map[string][]byte)
		return nil, binary.BigEndian.Uint16(request[4:]) == protocolMajor // a cancel has no answer
	}
	for len(request) > 0 {
		n := 1 + int(binary.BigEndian.Uint32(request[1:]))
		fields := bytes.SplitN(request[messageHead:n], []byte{0}, 3)
		switch kind := request[0]; {
		case kind == 'Q':
			shown, answered = append(shown, fields[0]...), true
		case kind == 'P' && len(fields) == 3:
			p.texts[string(fields[0])] = bytes.Clone(fields[1])
		case kind == 'B' && len(fields) == 3:
			shown = append(append(shown, p.texts[string(fields[1])]...), '\n')
		case kind == 'S':
			answered = true
		}
		request = request[n:]
	}
	return shown, answered
}

func (*postgres) unasked(reply []byte) bool { return reply[0] == 'A' || reply[0] == 'G' }

// fitted returns size if b holds that many bytes, else 0.
func fitted(size int, b []byte) int {
	if size > len(b) {
		return 0
	}
	return size
}

// upTo returns the total size of the messages of PostgreSQL at the head of b, up to and
// including the first for which last reports true. It returns 0 while that message is
// incomplete; ok is false if b is malformed.
func upTo(b []byte, last func(message []byte) bool) (size int, ok bool) {
	for {
		if len(b) < size+messageHead {
			return 0, true
		}
		n := int(binary.BigEndian.Uint32(b[size+1:]))
		if n < messageHead-1 || n > maxLength {
			return 0, false
		}
		end := size + 1 + n
		if end > len(b) {
			return 0, true
		}
		if last(b[size:end]) {
			return end, true
		}
		size = end
	}
}

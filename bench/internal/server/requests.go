package server

import "bytes"

// requests counts the commands, which are arrays of strings, in a stream of bytes from
// a client of Redis. The stream may come in pieces of any size.
type requests struct {
	count int64
	line  []byte // beginning of an incomplete header
	skip  int    // remaining bytes of a string and its line end
	left  int    // remaining strings of the command
}

// take counts the commands that end in the piece.
func (r *requests) take(piece []byte) {
	for len(piece) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(piece))
			r.skip -= n
			piece = piece[n:]
			r.finish()
			continue
		}
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			r.line = append(r.line, piece...)
			return
		}
		r.header(append(r.line, piece[:end]...))
		r.line = r.line[:0]
		piece = piece[end+1:]
	}
}

// header reads the first line of an array or a string.
func (r *requests) header(line []byte) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 {
		return
	}
	n := 0
	for _, digit := range line[1:] {
		n = n*10 + int(digit-'0')
	}
	switch line[0] {
	case '*':
		r.left = n
	case '$':
		r.left--
		r.skip = n + len("\r\n")
	}
}

// finish counts the command if its last string is complete.
func (r *requests) finish() {
	if r.skip == 0 && r.left == 0 {
		r.count++
	}
}

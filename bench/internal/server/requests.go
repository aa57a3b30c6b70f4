package server

import "bytes"

// requests counts the commands in a stream of bytes from a client of Redis: arrays of
// strings, in whatever pieces they come.
type requests struct {
	count int64
	line  []byte // of a header that has not come whole yet
	skip  int    // bytes left of a string and its line end
	left  int    // strings left of the command
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

// finish counts the command where its last string has come.
func (r *requests) finish() {
	if r.skip == 0 && r.left == 0 {
		r.count++
	}
}

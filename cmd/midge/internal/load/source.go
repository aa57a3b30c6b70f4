package load

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/midgehq/midge/storage"
)

// Source is the file that is loaded.
type Source struct {
	// Name is the path for errors.
	Name string
	// Open opens the file at its beginning. The size is 0 if it is not known. Open is called again if the
	// load has to go back, which happens if two loaders of the file do not make the same steps. Its reads
	// may not block after ctx has ended.
	Open func(ctx context.Context) (in io.ReadCloser, size int64, err error)
}

// Format is the form of the rows of a file.
type Format string

// The formats.
const (
	JSONL Format = "jsonl" // each line is a value of JSON
	CSV   Format = "csv"   // RFC 4180, with a header
	Lines Format = "lines" // each line is a text
)

// Check returns a *[storage.InvalidError] unless the format is one of the three.
func (f Format) Check() error {
	switch f {
	case JSONL, CSV, Lines:
		return nil
	}
	return storage.Invalid("--format", string(f), "jsonl, csv or lines")
}

// FormatOf returns the format that the name of a file tells, "" if it tells none.
func FormatOf(name string) Format {
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz")) {
	case ".jsonl", ".ndjson":
		return JSONL
	case ".csv":
		return CSV
	case ".txt", ".lines":
		return Lines
	}
	return ""
}

// text is the text of an open source.
type text struct {
	io.Reader // of the text itself

	file io.Closer
	size int64    // of the file, 0 if it is not known
	read *counter // nil if the text is the file as it is
}

// counter counts the bytes that were read.
type counter struct {
	in io.Reader
	n  atomic.Int64
}

// Read reads and counts.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// open opens the text of a source. It decompresses a file that begins as gzip does.
func (s *Source) open(ctx context.Context) (*text, error) {
	file, size, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	t := &text{file: file, size: size}
	read := &counter{in: file}
	in := bufio.NewReaderSize(read, 256<<10)
	t.Reader = in
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) { // an error comes again with the first read
		t.read = read
		if t.Reader, err = gzip.NewReader(in); err != nil {
			_ = file.Close() // it was only read
			return nil, err
		}
	}
	return t, nil
}

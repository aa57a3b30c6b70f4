package load

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
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
	// Pipe is set if a program writes the text while it is loaded. The last row of such a text has to end with
	// a newline, because the program may have died within the row.
	Pipe bool
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

// FormatOf returns the format for the ending of the name of a file, "" if there is none.
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

// Read reads from the file, and counts the bytes.
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
		unzipped, err := gzip.NewReader(in)
		if err != nil {
			_ = file.Close() // it was only read
			return nil, damaged(err)
		}
		t.Reader = &unzip{unzipped}
	}
	return t, nil
}

// unzip reads the text of a file of gzip. If the file is damaged, its error is a *DamagedError.
type unzip struct{ in *gzip.Reader }

// Read reads and decompresses.
func (u *unzip) Read(p []byte) (int, error) {
	n, err := u.in.Read(p)
	return n, damaged(err)
}

// DamagedError means that a file begins as gzip does, but cannot be decompressed to its end.
type DamagedError struct {
	// Is names the fault of the file.
	Is  string
	err error
}

// Error names the fault of the file.
func (e *DamagedError) Error() string { return e.Is }

// Unwrap returns the error of the decompression.
func (e *DamagedError) Unwrap() error { return e.err }

// damaged returns a *DamagedError for an error that means that the file is damaged, and any other error as it
// is.
func damaged(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &DamagedError{"its gzip data ends in the middle", err}
	case errors.Is(err, gzip.ErrHeader):
		return &DamagedError{"something else than gzip data stands in it", err}
	case errors.Is(err, gzip.ErrChecksum):
		return &DamagedError{"the checksum of its gzip data is wrong, so that its rows may be wrong, too", err}
	case errors.As(err, new(flate.CorruptInputError)):
		return &DamagedError{"its gzip data is damaged", err}
	}
	return err
}

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"
)

// parts is the number of parts of a file, each with a report of its progress.
const parts = 10

// errData is the error of a file that no other attempt could compress.
var errData = errors.New("it is not UTF-8")

// exitCode returns the exit code for an error: 65 means that a retry is useless.
func exitCode(err error) int {
	if errors.Is(err, errData) {
		return 65
	}
	return 1
}

// compress is the program: it reads the parameters of one task, compresses the file, and reports on file
// descriptor 3.
func compress(params io.Reader, reports io.Writer) error {
	var job Compress
	if err := json.NewDecoder(params).Decode(&job); err != nil {
		return fmt.Errorf("read the parameters: %w", err)
	}
	text, err := os.ReadFile(job.From)
	if err != nil {
		return err
	}
	if !utf8.Valid(text) {
		return fmt.Errorf("%s: %w", job.From, errData)
	}
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	report := json.NewEncoder(reports) // one line per report
	for part := range parts {
		from, end := len(text)*part/parts, len(text)*(part+1)/parts
		if _, err := to.Write(text[from:end]); err != nil {
			return err
		}
		time.Sleep(job.Pace)
		progress := map[string]any{"progress": map[string]int{"done": part + 1, "of": parts}}
		if err := report.Encode(progress); err != nil {
			return err
		}
	}
	if err := to.Close(); err != nil {
		return err
	}
	// The file is written in one step, so that a killed attempt leaves no half of it.
	if err := os.WriteFile(job.To+".new", packed.Bytes(), 0o600); err != nil {
		return err
	}
	if err := os.Rename(job.To+".new", job.To); err != nil {
		return err
	}
	return report.Encode(map[string]any{"result": map[string]int{"bytes": packed.Len()}})
}

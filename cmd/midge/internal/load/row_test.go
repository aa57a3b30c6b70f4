package load

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

const mark = "\ufeff" // a byte order mark

// TestEachRowIsATask loads files of each format, plain and compressed.
func TestEachRowIsATask(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		set        func(*Rows)
		want       []string
	}{
		"json":       {"a.jsonl", "{\"a\": 1}\n\n  \n[2]\n\"three\"\nnull\n", nil, []string{`{"a":1}`, `[2]`, `"three"`, `null`}},
		"json, CRLF": {"a.ndjson", mark + "{\"a\":1}\r\n\r\n{\"a\":2}", nil, []string{`{"a":1}`, `{"a":2}`}},
		"empty":      {"a.jsonl", "", nil, []string{}},
		"blank":      {"a.jsonl", mark + "\n\r\n", nil, []string{}},
		"csv": {
			"a.csv", "id,name\n1,Ann\n2,\"Bo \"\"B\"\" <b>,\nsecond line\"\n", nil,
			[]string{`{"id":"1","name":"Ann"}`, `{"id":"2","name":"Bo \"B\" <b>,\nsecond line"}`},
		},
		"csv, CRLF": {
			"a.csv", mark + "\r\nid,name\r\n\r\n1,\"a\r\nb\"\r\n2,", nil,
			[]string{`{"id":"1","name":"a\r\nb"}`, `{"id":"2","name":""}`},
		},
		"csv, ends of lines in values": {
			"a.csv", "id,\"the\r\nname\"\n\"\r\n\",\"a\nb\"\r\n1,\"\ra\r\r\n\n\r\nb\r\"\n2,\"c\r\n\"\r\n", nil,
			[]string{
				`{"id":"\r\n","the\r\nname":"a\nb"}`, `{"id":"1","the\r\nname":"\ra\r\r\n\n\r\nb\r"}`,
				`{"id":"2","the\r\nname":"c\r\n"}`,
			},
		},
		"csv, header alone": {"a.csv", "id,name", nil, []string{}},
		"csv, empty":        {"a.csv", "", nil, []string{}},
		"types": {
			"a.csv", "i,f,b,j,t\n-7,1.50,true,\"{\"\"a\"\":[1]}\",x\n18446744073709551615,1e300,0,null,\n,,,,\n",
			func(r *Rows) { r.Types = map[string]Type{"i": Int, "f": Float, "b": Bool, "j": JSON, "t": Text} },
			[]string{
				`{"i":-7,"f":1.5,"b":true,"j":{"a":[1]},"t":"x"}`,
				`{"i":18446744073709551615,"f":1e+300,"b":false,"j":null,"t":""}`, `{"i":null,"f":null,"b":null,"j":null,"t":""}`,
			},
		},
		"lines":          {"a.txt", "one\r\n\n two \nthree\r\r\n", nil, []string{`"one"`, `" two "`, `"three\r"`}},
		"lines, a field": {"a.txt", "a&b\n\"q\"\n", func(r *Rows) { r.Field = "url" }, []string{`{"url":"a&b"}`, `{"url":"\"q\""}`}},
		"msgpack":        {"a.jsonl", "{\"a\":[1,-2.5,\"x\"]}\n", func(r *Rows) { r.Task.Encoding = "msgpack" }, []string{`{"a":[1,-2.5,"x"]}`}},
	} {
		for _, ending := range []string{"", ".gz"} {
			t.Run(name+ending, func(t *testing.T) {
				r := newRig(t)
				l := r.loader(r.write(c.file+ending, c.text))
				if c.set != nil {
					c.set(&l.Rows)
				}
				report := r.ok(l)
				r.loaded(c.want...)
				if n := int64(len(c.want)); report.Rows != n || report.Loaded != n || report.Done != report.Of {
					t.Errorf("got %+v, want %d rows and the whole file", report, n)
				}
				again := r.loader(l.Source.Name)
				again.Rows = l.Rows
				if report := r.ok(again); report.Loaded+report.Existing != 0 || report.Before != int64(len(c.want)) {
					t.Errorf("the second time: %+v", report)
				}
				r.loaded(c.want...)
			})
		}
	}
}

// TestAWrongRowStopsTheLoad also checks that the row is not quoted, and that it is rejected.
func TestAWrongRowStopsTheLoad(t *testing.T) {
	types := func(r *Rows) { r.Types = map[string]Type{"a": Int} }
	partition := func(r *Rows) { r.PartitionField = "a" }
	for name, c := range map[string]struct {
		file, good, wrong string
		set               func(*Rows)
		line              int64
		reason            string
	}{
		"cut JSON":            {"a.jsonl", "{}\n", "{\"secret\": [1, \n", nil, 2, "the row is no JSON: want JSON to its end"},
		"wrong JSON":          {"a.jsonl", "{}\n", "{\"secret\" 1}\n", nil, 2, "want valid JSON: character 11 does not fit"},
		"two values":          {"a.jsonl", "{}\n", "{} secret\n", nil, 2, "the row is no JSON"},
		"no UTF-8":            {"a.jsonl", "{}\n", "\"secret\xff\"\n", nil, 2, "not valid UTF-8"},
		"no UTF-8, line":      {"a.txt", "x\n", "secret\xff\n", nil, 2, "not valid UTF-8"},
		"large":               {"a.txt", "x\n", "secret" + strings.Repeat("x", 1<<20) + "\n", nil, 2, "of 1048584 bytes: want at most 1048576 bytes"},
		"large JSON":          {"a.jsonl", "1\n", "[\"secret" + strings.Repeat("x", 1<<20) + "\"]\n", nil, 2, "bytes: want at most 1048576 bytes"},
		"columns":             {"a.csv", "a,b\n1,2\n", "secret\n", nil, 3, "the row has 1 columns: want 2"},
		"more columns":        {"a.csv", "a,b\n1,\"2\n3\"\n", "1,2,secret\n", nil, 4, "the row has 3 columns: want 2"},
		"a quote":             {"a.csv", "a,b\n1,2\n", "secret\",2\n", nil, 3, `no CSV: bare "`},
		"a late quote":        {"a.csv", "a,b\n1,2\n", "\"secret\"x,2\n", nil, 3, "no CSV"},
		"bare, then open":     {"a.csv", "a,b\n1,2\n", "1,x\"y,\"secret\n", nil, 3, `no CSV: bare "`},
		"late, then open":     {"a.csv", "a,b\n1,2\n", "\"1\"x,\"secret\r\n", nil, 3, "no CSV"},
		"a return, then open": {"a.csv", "a,b\n1,2\n", "\"1\"\r,\"secret\n", nil, 3, "no CSV"},
		"a space, then open":  {"a.csv", "a,b\n1,\"2\n3\"\n", "1, \"2\",\"secret\n", nil, 4, `no CSV: bare "`},
		"type":                {"a.csv", "a,b\n1,2\n", "secret,2\n", types, 3, `the value of the column "a" is no int`},
		"partition":           {"a.jsonl", "{\"a\":1}\n", "{\"a\":\"secret\\u0000\"}\n", partition, 2, `the value of the field "a" is no partition`},
		"an array":            {"a.jsonl", "{\"a\":\"x\"}\n", "[\"secret\"]\n", partition, 2, "no object"},
		"an object":           {"a.jsonl", "{\"a\":null}\n", "{\"a\":{\"secret\":1}}\n", partition, 2, "neither a text nor a number"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			path := r.write(c.file, c.good+c.wrong+c.good[strings.IndexByte(c.good, '\n')+1:]+lastLine(c.good))
			l := r.loader(path)
			if c.set != nil {
				c.set(&l.Rows)
			}
			var row *RowError
			report, err := l.Run(t.Context())
			if !errors.As(err, &row) || row.Line != c.line || !strings.Contains(row.Reason, c.reason) || report.Loaded != 1 {
				t.Fatalf("got %+v, %v, want line %d: %s", report, err, c.line, c.reason)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows the row: %v", err)
			}
			again := r.rejecting(r.loader(path))
			again.Rows = l.Rows
			if report := r.ok(again); report.Rejected != 1 {
				t.Errorf("got %+v, want 1 rejected", report)
			}
			want := c.wrong
			if l.Rows.Format == CSV {
				want = "a,b\n" + want
			}
			if got := r.rejected(); got != want {
				t.Errorf("the file of wrong rows has %.80q, want %.80q", got, want)
			}
			if rows := r.rows(); len(rows) < 2 || rows[0] != rows[len(rows)-1] {
				t.Errorf("got %.100q, want the good row before and behind the wrong one", rows)
			}
		})
	}
}

// lastLine returns the last row of a text.
func lastLine(text string) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if strings.HasSuffix(text, "3\"\n") { // it has two lines
		return strings.Join(lines[len(lines)-2:], "") + "\n"
	}
	return lines[len(lines)-1] + "\n"
}

// TestAWrongHeaderLoadsNothing also with a file for wrong rows.
func TestAWrongHeaderLoadsNothing(t *testing.T) {
	for text, reason := range map[string]string{
		"a,a\n1,2\n":  `two columns with the name "a"`,
		"a,\n1,2\n":   "a column without a name",
		"b,c\n1,2\n":  `no column "a", which --types names`,
		"a,\"c\n1,2":  "the header is no CSV",
		"a\xff,b\n1,": "the header is not valid UTF-8",
	} {
		r := newRig(t)
		l := r.rejecting(r.loader(r.write("a.csv", text)))
		l.Rows.Types = map[string]Type{"a": Int}
		var row *RowError
		if _, err := l.Run(t.Context()); !errors.As(err, &row) || row.Line != 1 || !strings.Contains(row.Reason, reason) {
			t.Errorf("header of %q: got %v, want %s", text, err, reason)
		}
		r.loaded()
	}
}

// TestARowHasItsPartition takes the partition from JSON and from CSV.
func TestARowHasItsPartition(t *testing.T) {
	r := newRig(t)
	for name, text := range map[string]string{"a.jsonl": "{\"c\":\"acme\"}\n{\"c\":7}\n{}\n", "b.csv": "c\nacme\n\"\"\n"} {
		l := r.loader(r.write(name, text))
		l.Rows.PartitionField = "c"
		r.ok(l)
	}
	var got []string
	for _, task := range r.tasks() {
		got = append(got, task.Partition)
	}
	if text := strings.Join(got, ","); text != "acme,7,,acme," {
		t.Errorf("got the partitions %s", text)
	}
}

// TestSettingsThatDoNotGoTogether are refused before any I/O.
func TestSettingsThatDoNotGoTogether(t *testing.T) {
	for want, set := range map[string]func(*Loader){
		"--format":          func(l *Loader) { l.Rows.Format = "xml" },
		"--field":           func(l *Loader) { l.Rows.Field = "a" },
		"--types":           func(l *Loader) { l.Rows.Types = map[string]Type{"a": Int} },
		"--partition-field": func(l *Loader) { l.Rows.Format, l.Rows.PartitionField = Lines, "a" },
		"--name":            func(l *Loader) { l.Name = strings.Repeat("a", 101) },
		"--high-water":      func(l *Loader) { l.HighWater = -1 },
		"kind":              func(l *Loader) { l.Rows.Task.Kind = "no kind" },
		"queue name":        func(l *Loader) { l.Rows.Task.Queue = "midge.own" },
		"encoding":          func(l *Loader) { l.Rows.Task.Encoding = "xml" },
	} {
		r := newRig(t)
		l := r.loader("/nowhere/a.jsonl")
		set(l)
		var invalid *storage.InvalidError
		if _, err := l.Run(t.Context()); !errors.As(err, &invalid) || !strings.Contains(invalid.What, want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}

// broken is a file whose end cannot be read.
type broken struct{ io.Reader }

var errBroken = errors.New("input/output error")

func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errBroken
	}
	return n, err
}

// TestAPartOfARowIsNoRow cuts a compressed file, and lets a disk fail.
func TestAPartOfARowIsNoRow(t *testing.T) {
	text := strings.Repeat("1234567\n", 1000)
	cut := zipped(text)
	for name, in := range map[string]io.Reader{
		"disk": broken{strings.NewReader("1\n22")}, "gzip": strings.NewReader(string(cut[:len(cut)-9])),
	} {
		r := newRig(t)
		l := r.loader("/a.txt")
		l.Source.Open = func(context.Context) (io.ReadCloser, int64, error) { return io.NopCloser(in), 0, nil }
		_, err := l.Run(t.Context())
		if !errors.Is(err, errBroken) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: got %v", name, err)
		}
		for _, row := range r.rows() {
			if row != `"1"` && row != `"1234567"` {
				t.Errorf("%s: got the row %s", name, row)
			}
		}
	}
}

// TestThePipeOfADeadProgram ends within a row: the row is not loaded, and with the whole text the load goes on.
// A file may end without a newline.
func TestThePipeOfADeadProgram(t *testing.T) {
	for name, c := range map[string]struct {
		file, good, row string
		rows            []string // of the text so far
	}{
		"lines":          {"a.txt", "1\n2\n", "345", []string{`"1"`, `"2"`}},
		"jsonl":          {"a.jsonl", "1\n2\n", "345", []string{`1`, `2`}},
		"csv":            {"a.csv", "a,b\n1,2\n", "3,45", []string{`{"a":"1","b":"2"}`}},
		"csv, a quote":   {"a.csv", "a,b\n1,2\n", "3,\"4\n5\"", []string{`{"a":"1","b":"2"}`}},
		"csv, a header":  {"a.csv", "", "a,b", nil},
		"gzip":           {"a.txt.gz", "1\n2\n", "345", []string{`"1"`, `"2"`}},
		"the first line": {"a.txt", "", "345", nil},
	} {
		for cut := 1; cut <= len(c.row); cut++ {
			r := newRig(t)
			pipe := func(text string) *Loader {
				l := r.rejecting(r.loader(r.write(c.file, text)))
				l.Source.Pipe = true
				return l
			}
			report, err := pipe(c.good + c.row[:cut]).Run(t.Context())
			var row *RowError
			if !errors.As(err, &row) || !strings.Contains(row.Reason, "the text ends within the row") || row.Rejectable ||
				report.Finished || report.Rows != int64(len(c.rows)) {
				t.Errorf("%s, %d bytes of the row: got %+v, %v", name, cut, report, err)
			}
			if len(r.tasks()) > 0 || c.rows != nil {
				r.loaded(c.rows...)
			}
			whole := r.ok(pipe(c.good + c.row + "\n"))
			other := newRig(t)
			if file := other.ok(other.loader(other.write(c.file, c.good+c.row))); file.Rows != whole.Rows {
				t.Errorf("%s: %d rows of the whole text, and %d of a file without a newline", name, whole.Rows, file.Rows)
			}
			r.loaded(other.rows()...)
			if text := r.rejected(); text != "" {
				t.Errorf("%s: %q was rejected", name, text)
			}
		}
	}
}

// FuzzScanner splits any text: the rows together are the text, and encoding/csv reads each row to its end.
func FuzzScanner(f *testing.F) {
	f.Add("a,b\n\"c\n\"\"d\",e\n", true)
	f.Add("\"a\nb", true)
	f.Add("a\r\n\nb", false)
	for _, seed := range []string{"1,x\"y,\"z\nb\n", "\"1\"\r,\"z\nb\n", "\"a\r\nb\"\r\n", "\"a\r\r\n\"\r\r\n", "\"\"\"\n\",\r\n\r\n\"\r"} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, text string, isCSV bool) {
		format := Lines
		if isCSV {
			format = CSV
		}
		s := newScanner(strings.NewReader(text), format, false)
		var got strings.Builder
		for {
			row, err := s.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || len(row) == 0 {
				t.Fatalf("%q, %v", row, err)
			}
			got.Write(row)
			whole := kept(row)
			c := csv.NewReader(bytes.NewReader(whole))
			if _, err := c.Read(); isCSV && err == nil && c.InputOffset() != int64(len(whole)) {
				t.Errorf("%q: encoding/csv leaves %q of the row %q", text, whole[c.InputOffset():], row)
			}
		}
		if got.String() != text {
			t.Errorf("got %q, want %q", got.String(), text)
		}
	})
}

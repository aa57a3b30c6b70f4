package load

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
)

// Type is the type of the values of a column of CSV.
type Type string

// The types. Without a type the values of a column are texts.
const (
	Text  Type = "text"
	Int   Type = "int"
	Float Type = "float"
	Bool  Type = "bool"
	JSON  Type = "json"
)

// ParseTypes parses types of columns, each as column=type.
func ParseTypes(words []string) (map[string]Type, error) {
	types := make(map[string]Type)
	for _, word := range words {
		at := strings.LastIndexByte(word, '=')
		if at < 1 {
			return nil, storage.Invalid("--types", word, "column=type")
		}
		column := word[:at]
		if types[column] != "" {
			return nil, storage.Invalid("--types", column+" twice", "one type for each column")
		}
		switch t := Type(word[at+1:]); t {
		case Text, Int, Float, Bool, JSON:
			types[column] = t
		default:
			return nil, storage.Invalid("--types", word, "one of the types text, int, float, bool and json")
		}
	}
	return types, nil
}

// RowError is the error for a row that cannot be loaded.
type RowError struct {
	File string
	Line int64 // where the row begins
	// Reason names the fault of the row. It quotes nothing of the row.
	Reason string
	// Rejectable is set if a load with a file for wrong rows goes on behind the row.
	Rejectable bool
}

// Error names the row and the reason.
func (e *RowError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// Rows describes how the rows of a file become tasks.
type Rows struct {
	Format Format
	// Field is the name of the field for the text of a line. Without it the text itself is the parameter.
	Field string
	// Types are the types of columns of CSV.
	Types map[string]Type
	// PartitionField is the name of the field whose value is the partition of the task, "" for none.
	PartitionField string
	// Task describes the tasks, but for their ids and parameters.
	Task bulk.Add
}

// check returns a *[storage.InvalidError] if the settings do not go together, or if no task could be made
// by them.
func (r *Rows) check() error {
	if err := r.Format.Check(); err != nil {
		return err
	}
	switch {
	case r.Field != "" && r.Format != Lines:
		return storage.Invalid("--field", r.Field, "none with the format %s", r.Format)
	case len(r.Types) > 0 && r.Format != CSV:
		return storage.Invalid("--types", "of the format "+string(r.Format), "types of columns of csv alone")
	case r.PartitionField != "" && r.Format == Lines:
		return storage.Invalid("--partition-field", r.PartitionField, "none with the format %s", r.Format)
	}
	add := r.Task
	add.ID, add.Params = "1", []byte("null")
	in, err := add.Insert()
	if err != nil {
		return err
	}
	return storage.CheckInsert(storage.Limits{}, &in)
}

// perStep returns the most rows of one step.
func (r *Rows) perStep() int64 {
	if r.PartitionField != "" || r.Task.Partition != "" {
		return partitionedPerStep
	}
	return rowsPerStep
}

// parser makes tasks of rows.
type parser struct {
	Rows

	limits  storage.Limits
	columns []column // of CSV
	feed    *bytes.Reader
	csv     *csv.Reader
}

type column struct {
	name string
	key  string // the name as a key of JSON, with the colon
	typ  Type
}

func newParser(rows Rows, limits storage.Limits) *parser {
	p := &parser{Rows: rows, limits: limits.WithDefaults()}
	p.renew()
	return p
}

// renew makes the reader of CSV. After an error, lines of the wrong row may be left in the old reader.
func (p *parser) renew() {
	p.feed = bytes.NewReader(nil)
	p.csv = csv.NewReader(p.feed)
	p.csv.FieldsPerRecord = -1
	p.csv.ReuseRecord = true
}

// blank reports whether the text of a row holds no row.
func (p *parser) blank(text []byte) bool {
	if p.Format == CSV {
		return len(bytes.TrimRight(text, "\r\n")) == 0
	}
	return len(bytes.TrimSpace(text)) == 0
}

// header reads the names of the columns.
func (p *parser) header(text []byte) (reason string) {
	names, reason := p.fields(text)
	if reason != "" {
		return "the header " + strings.TrimPrefix(reason, "the row ")
	}
	known := make(map[string]bool)
	for _, name := range names {
		switch {
		case name == "":
			return "the header has a column without a name"
		case known[name]:
			return "the header has two columns with the name " + strconv.Quote(name)
		}
		known[name] = true
		p.columns = append(p.columns, column{name: name, key: string(quote(nil, name)) + ":", typ: p.Types[name]})
	}
	for name := range p.Types {
		if !known[name] {
			return "the header has no column " + strconv.Quote(name) + ", which --types names"
		}
	}
	if p.PartitionField != "" && !known[p.PartitionField] {
		return "the header has no column " + strconv.Quote(p.PartitionField) + ", which --partition-field names"
	}
	return ""
}

// fields returns the fields of a row of CSV.
func (p *parser) fields(text []byte) (fields []string, reason string) {
	if !utf8.Valid(text) {
		return nil, notUTF8
	}
	p.feed.Reset(kept(text))
	fields, err := p.csv.Read()
	if err == nil {
		return fields, ""
	}
	p.renew()
	var parse *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return nil, "the row is empty"
	case errors.As(err, &parse): // its line is that within the row
		return nil, "the row is no CSV: " + parse.Err.Error()
	}
	return nil, "the row is no CSV"
}

// kept returns the text of a row of CSV for encoding/csv, which drops the CR of each CRLF. It is to drop that
// of the end of the row alone, and none within quotes.
func kept(text []byte) []byte {
	row := withoutEnd(text)
	if !bytes.Contains(row, []byte("\r\n")) {
		return text
	}
	return append(bytes.ReplaceAll(row, []byte("\r\n"), []byte("\r\r\n")), text[len(row):]...)
}

// withoutEnd returns the text of a row without the end of its line.
func withoutEnd(text []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
}

const notUTF8 = "the row is not valid UTF-8"

// insert makes the task of a row. reason is why there is none.
func (p *parser) insert(id string, text []byte) (in storage.Insert, reason string) {
	add := p.Task
	add.ID = id
	params, partition, reason := p.params(text)
	if reason != "" {
		return in, reason
	}
	if add.Params = params; p.PartitionField != "" {
		add.Partition = partition
	}
	in, err := add.Insert()
	if err == nil {
		err = storage.CheckInsert(p.limits, &in)
	}
	if err == nil && len(in.Payload) > mostPayload {
		err = storage.Invalid("payload", fmt.Sprintf("of %d bytes", len(in.Payload)), "at most %d bytes",
			mostPayload)
	}
	if err != nil {
		return in, p.refused(err, params)
	}
	return in, ""
}

// refused returns why no task can be made of a row. The text quotes nothing of the row, as the error may.
func (p *parser) refused(err error, params []byte) string {
	var invalid *storage.InvalidError
	if p.Format == JSONL {
		if syntax := payload.CheckJSON("row", params); errors.As(syntax, &invalid) {
			return "the row is no JSON: want " + invalid.Want
		}
	}
	switch {
	case !errors.As(err, &invalid):
		return "the row is refused"
	case invalid.What == "payload": // its Got is a length
		return "the parameters are " + strings.Trim(invalid.Got, `"`) + ": want " + invalid.Want
	case strings.Contains(invalid.What, "partition"):
		return fmt.Sprintf("the value of the field %q is no partition: want %s", p.PartitionField, invalid.Want)
	}
	return "the row is refused: want " + invalid.Want
}

// params returns the parameters of a row as JSON, and its partition.
func (p *parser) params(text []byte) (params []byte, partition, reason string) {
	if p.Format == CSV {
		return p.object(text)
	}
	if p.Format == Lines {
		text = withoutEnd(text)
		switch {
		case !utf8.Valid(text):
			return nil, "", notUTF8
		case p.Field == "":
			return quote(nil, string(text)), "", ""
		}
		params = append(quote([]byte{'{'}, p.Field), ':')
		return append(quote(params, string(text)), '}'), "", ""
	}
	params = bytes.TrimSpace(text)
	switch {
	case !utf8.Valid(params):
		return nil, "", notUTF8
	case p.PartitionField != "":
		partition, reason = p.member(params)
	}
	return params, partition, reason
}

// member returns the partition that stands in a row of JSON, "" if the row has none.
func (p *parser) member(params []byte) (partition, reason string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(params, &fields) != nil {
		if json.Valid(params) {
			return "", "the row is no object, and --partition-field names a field"
		}
		return "", "" // the encoding of the parameters fails with the reason
	}
	value := fields[p.PartitionField]
	var word string
	var number json.Number
	switch {
	case len(value) == 0, string(value) == "null":
		return "", ""
	case json.Unmarshal(value, &word) == nil:
		return word, ""
	case json.Unmarshal(value, &number) == nil:
		return number.String(), ""
	}
	return "", "the value of the field " + strconv.Quote(p.PartitionField) + " is neither a text nor a number"
}

// object returns a row of CSV as an object of JSON.
func (p *parser) object(text []byte) (params []byte, partition, reason string) {
	fields, reason := p.fields(text)
	if reason != "" {
		return nil, "", reason
	}
	if len(fields) != len(p.columns) {
		return nil, "", fmt.Sprintf("the row has %d columns: want %d, as the header has", len(fields),
			len(p.columns))
	}
	params = append(make([]byte, 0, 2*len(text)+16*len(fields)), '{')
	for i, c := range p.columns {
		if i > 0 {
			params = append(params, ',')
		}
		params = append(params, c.key...)
		if params, reason = c.value(params, fields[i]); reason != "" {
			return nil, "", reason
		}
		if c.name == p.PartitionField {
			partition = strings.Clone(fields[i])
		}
	}
	return append(params, '}'), partition, ""
}

// value appends a value of a column as JSON. An empty value of a column with a type is null.
func (c *column) value(out []byte, value string) (_ []byte, reason string) {
	if value == "" && c.typ != "" && c.typ != Text {
		return append(out, "null"...), ""
	}
	switch c.typ {
	case "", Text:
		return quote(out, value), ""
	case Int:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			return strconv.AppendInt(out, n, 10), ""
		}
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			return strconv.AppendUint(out, n, 10), ""
		}
	case Float:
		f, err := strconv.ParseFloat(value, 64)
		if err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return strconv.AppendFloat(out, f, 'g', -1, 64), ""
		}
	case Bool:
		if b, err := strconv.ParseBool(value); err == nil {
			return strconv.AppendBool(out, b), ""
		}
	case JSON:
		if json.Valid([]byte(value)) {
			return append(out, value...), ""
		}
	}
	return out, fmt.Sprintf("the value of the column %q is no %s", c.name, c.typ)
}

// quote appends a text as JSON.
func quote(out []byte, text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the parameters are no HTML
	_ = e.Encode(text)     //nolint:errchkjson // a text has JSON
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}

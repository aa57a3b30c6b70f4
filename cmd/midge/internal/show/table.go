package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// Column is a column of a table.
type Column[T any] struct {
	// Name is the name of the column in --columns. The head of the column is the name in capitals. Also is
	// another name in --columns, which earlier versions had; "" for none.
	Name, Also string
	// Wide hides the column unless --columns names it or the format is Wide.
	Wide bool
	// Right aligns the column to the right, for numbers.
	Right bool
	Text  func(p *Printer, row T) string
	// Style returns the style of the text of a row; nil means no style.
	Style func(row T) Style
}

// List defines how rows of a type are written.
type List[T any] struct {
	Columns []Column[T]
	// Record returns the value that represents a row in JSON.
	Record func(row T) any
	// ID returns the argument that names a row in the next command.
	ID func(row T) string
}

// Write writes rows in the format of p. A table without rows has no head.
func (l List[T]) Write(p *Printer, rows []T) error {
	switch p.Format {
	case IDs:
		for _, row := range rows {
			if _, err := fmt.Fprintln(p.Out, l.ID(row)); err != nil {
				return err
			}
		}
		return nil
	case JSONL:
		for _, row := range rows {
			if err := p.Value(l.Record(row)); err != nil {
				return err
			}
		}
		return nil
	case JSON:
		records := make([]any, len(rows))
		for i, row := range rows {
			records[i] = l.Record(row)
		}
		return p.Value(records)
	default:
		columns, err := l.Chosen(p)
		if err != nil || len(rows) == 0 {
			return err
		}
		return table(p, columns, rows)
	}
}

// Chosen returns the columns that a table shows, or a *[storage.InvalidError] if p names an unknown column.
func (l List[T]) Chosen(p *Printer) ([]Column[T], error) {
	var chosen []Column[T]
	for _, name := range p.Columns {
		at := slices.IndexFunc(l.Columns, func(c Column[T]) bool {
			return strings.EqualFold(c.Name, name) || c.Also != "" && strings.EqualFold(c.Also, name)
		})
		if at < 0 {
			return nil, storage.Invalid("column", name, "%s", OneOf(l.Names()...))
		}
		chosen = append(chosen, l.Columns[at])
	}
	if chosen != nil {
		return chosen, nil
	}
	for _, c := range l.Columns {
		if p.Format == Wide || !c.Wide {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// Names lists the names of the columns.
func (l List[T]) Names() []string {
	names := make([]string, len(l.Columns))
	for i, c := range l.Columns {
		names[i] = c.Name
	}
	return names
}

// table writes columns side by side. On a terminal it cuts the last column to the rest of the line.
func table[T any](p *Printer, columns []Column[T], rows []T) error {
	cells := make([][]string, len(rows))
	width := make([]int, len(columns))
	for c, column := range columns {
		width[c] = utf8.RuneCountInString(column.Name)
	}
	for r, row := range rows {
		cells[r] = make([]string, len(columns))
		for c, column := range columns {
			cells[r][c] = column.Text(p, row)
			width[c] = max(width[c], utf8.RuneCountInString(cells[r][c]))
		}
	}
	narrow(p, columns, width, cells)
	if left := room(p, width); left > 0 {
		for r := range cells {
			cells[r][len(columns)-1] = Cut(cells[r][len(columns)-1], left)
		}
	}
	var head strings.Builder
	for c, column := range columns {
		pad(&head, strings.ToUpper(column.Name), width[c], column.Right, c == len(columns)-1,
			func(s string) string {
				return p.Paint(s, Faint)
			})
	}
	if err := writeLine(p.Out, head.String()); err != nil {
		return err
	}
	for r, row := range rows {
		var line strings.Builder
		for c, column := range columns {
			pad(&line, cells[r][c], width[c], column.Right, c == len(columns)-1, func(s string) string {
				if column.Style == nil {
					return s
				}
				return p.Paint(s, column.Style(row))
			})
		}
		if err := writeLine(p.Out, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// leasts are the least widths, in characters, to which narrow cuts a name, which the next command takes,
// and any other text. The first entry keeps a usual ref whole; the second applies if the first is not enough.
// leastLast is the least width of the last column.
var leasts = []struct{ name, text int }{{32, 12}, {12, 8}}

const leastLast = 10

// narrow cuts texts in their middle if the rows are wider than the terminal. It shortens the widest column
// first. Numbers stay whole.
func narrow[T any](p *Printer, columns []Column[T], width []int, cells [][]string) {
	if p.Width == 0 || p.Format == Wide {
		return
	}
	last := len(columns) - 1
	over := leastLast - p.Width
	for _, w := range width[:last] {
		over += w + 2
	}
	for _, least := range leasts {
		for ; over > 0; over-- {
			widest, most := -1, 0
			for c := range columns[:last] {
				bound := least.text
				if c == 0 {
					bound = least.name
				}
				if !columns[c].Right && width[c] > max(bound, most) {
					widest, most = c, width[c]
				}
			}
			if widest < 0 {
				break
			}
			width[widest]--
		}
	}
	for r := range cells {
		for c := range columns[:last] {
			cells[r][c] = Middle(cells[r][c], width[c])
		}
	}
}

// room returns the maximum width of the last column in characters; 0 means no maximum.
func room(p *Printer, width []int) int {
	if p.Width == 0 || p.Format == Wide || len(width) == 0 {
		return 0
	}
	before := 0
	for _, w := range width[:len(width)-1] {
		before += w + 2
	}
	return max(leastLast, p.Width-before)
}

// pad writes a painted cell and the space up to the next column.
func pad(b *strings.Builder, text string, width int, right, last bool, paint func(string) string) {
	space := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
	switch {
	case right:
		b.WriteString(space + paint(text))
	case last:
		b.WriteString(paint(text))
	default:
		b.WriteString(paint(text) + space)
	}
	if !last {
		b.WriteString("  ")
	}
}

func writeLine(out io.Writer, line string) error {
	_, err := io.WriteString(out, strings.TrimRight(line, " ")+"\n")
	return err
}

// Field is an entry of a page about one thing: a name, and a text of one or more lines.
type Field struct {
	Name, Text string
	Style      Style
}

// Fields writes a page about one thing, with the names on the left. It leaves out fields without a text.
func Fields(p *Printer, fields ...Field) error {
	width := 0
	for _, f := range fields {
		if f.Text != "" {
			width = max(width, utf8.RuneCountInString(f.Name))
		}
	}
	for _, f := range fields {
		if f.Text == "" {
			continue
		}
		text := f.Text
		if !strings.ContainsAny(text[:1], `{["`) { // keep JSON whole, so that users can copy it
			text = p.Wrapped(text, width+2)
		}
		for i, line := range strings.Split(text, "\n") {
			name := f.Name
			if i > 0 {
				name = ""
			}
			var b strings.Builder
			pad(&b, name, width, false, false, func(s string) string { return p.Paint(s, Faint) })
			b.WriteString(p.Paint(line, f.Style))
			if err := writeLine(p.Out, b.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Compact returns v as JSON on one line, or the text of the error if v has no JSON.
func Compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

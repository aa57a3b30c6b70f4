package sqlite

import "github.com/midgehq/midge/storage/internal/record"

// number scans an integer. A file may hold anything in any column: a value that is no integer, or is more
// than most, is replaced by the field or, and bad is set.
type number struct {
	to   *int64
	or   int64
	most int64 // 0 is no bound
	bad  *bool // nil if nobody needs it
}

// written scans a text or bytes. A value of another type becomes a text that no step writes.
type written string

// Scan takes the value of a column.
func (t *written) Scan(value any) error {
	switch v := value.(type) {
	case string:
		*t = written(v)
	case []byte:
		*t = written(v)
	default:
		*t = "damaged"
	}
	return nil
}

// moment scans a moment, 0 for any other value.
func moment(to *int64) number { return number{to: to, most: record.LastMoment} }

// Scan takes the value of a column.
func (n number) Scan(value any) error {
	i, ok := value.(int64)
	if !ok || n.most > 0 && i > n.most {
		i = n.or
		if n.bad != nil {
			*n.bad = true
		}
	}
	*n.to = i
	return nil
}

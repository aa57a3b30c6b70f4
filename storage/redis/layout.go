package redis

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/storage"
)

// The layout of the data in Redis is a number that grows with each change that other versions
// have to know of. Redis keeps the highest layout that was written, and the least layout that a
// process has to know to read the data. Versions before and after a change can share a Redis unless
// the change raises leastReader too.
const (
	layout      = 3
	leastReader = 3
)

// LayoutError reports that the data in Redis have a layout that this version cannot read.
type LayoutError struct {
	Prefix string
	Have   int // layout of the data
	Reader int // least layout that a version has to know to read the data
	Knows  int // layout that this version knows
}

// Error names both layouts, and the remedy.
func (e *LayoutError) Error() string {
	return fmt.Sprintf("redis: the data under the prefix %s have layout %d, which versions read that know "+
		"layout %d; this one knows %d: run a later version of midge, or give it a prefix of its own",
		e.Prefix, e.Have, e.Reader, e.Knows)
}

// Is makes errors.Is(err, storage.ErrRefused) hold.
func (e *LayoutError) Is(target error) bool {
	return target == storage.ErrRefused || target == errUnfit
}

// checkLayout writes the layout of this version. It returns a *LayoutError if this version cannot
// read the data.
func (s *Storage) checkLayout(ctx context.Context) error {
	list, err := s.scripts.layout.list(ctx, s.client, []any{s.keys.global("layout")}, layout, leastReader)
	if err != nil {
		if away(err) {
			return err
		}
		return nil // the user may not run scripts, of which Describe warns
	}
	v := values(list)
	have, reader := int(v.number()), int(v.number())
	if v.bad {
		return errReply
	}
	if reader > layout {
		return &LayoutError{Prefix: s.keys.prefix, Have: have, Reader: reader, Knows: layout}
	}
	return nil
}

package postgres

import "github.com/midgehq/midge/storage/internal/engine"

// Partition returns a partition.
func (w *work) Partition(*engine.Queue, string) *engine.Line { return nil }

// Turns returns partitions of a ring.
func (w *work) Turns(*engine.Queue, engine.Place, int) []*engine.Line { return nil }

// SetTurn moves a partition.
func (w *work) SetTurn(*engine.Line, engine.Place) {}

package sqlite

import "context"

// findRoom finds out, at most once a minute, whether the file has space for a small write, unless somebody
// writes. The write is rolled back, except for the clock that each step notes: SQLite writes to the disk only
// when a transaction commits.
func (s *Storage) findRoom(ctx context.Context) {
	if !s.room.Due() {
		return
	}
	var wr *writer
	select {
	case wr = <-s.writer:
	default:
		s.room.Missed()
		return
	}
	if wr == nil {
		var err error
		if wr, err = s.dial(ctx); err != nil {
			s.writer <- nil
			s.room.Missed()
			return
		}
	}
	s.release(wr, s.tryRoom(context.WithoutCancel(ctx), wr))
}

// tryRoom notes whether there is space for a small write. It reports whether the connection is sound.
func (s *Storage) tryRoom(ctx context.Context, wr *writer) (sound bool) {
	if _, err := wr.conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		s.room.Missed()
		return s.isBusy(err)
	}
	w := s.newWork(ctx, wr.conn, wr.stmts)
	refused := s.beginStep(ctx, wr, w)
	w.exec("SAVEPOINT midge_room")
	w.exec("INSERT INTO {p}sides (task, result) VALUES (-1, zeroblob(65536))")
	w.exec("ROLLBACK TO midge_room")
	w.changed = true
	w.finish()
	err := w.err
	if err == nil {
		_, err = wr.conn.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		s.room.Tried("")
		return true
	}
	_, undone := wr.conn.ExecContext(ctx, "ROLLBACK")
	s.room.Wrote(s.translate(err, false))
	return undone == nil && (refused != nil || s.isBusy(err) || s.primary(err) == codeFull)
}

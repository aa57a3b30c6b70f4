package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// TestAFullDiskIsDescribed: Describe reports that the disk is full by the last refused write of any verb and,
// for a handle that writes nothing, by a small write of its own. It ends with the first insert.
func TestAFullDiskIsDescribed(t *testing.T) {
	s := newShop(t)
	id := func(name string) storage.Tx { return storage.Tx{Inserts: []storage.Insert{insertOf(name)}} }
	apply := func(tx storage.Tx) error {
		_, err := s.session.ApplyOne(t.Context(), tx)
		return err
	}
	full := func(store *postgres.Storage) string {
		t.Helper()
		d, err := store.Describe(t.Context())
		s.must(err)
		if (d.Full == "") != d.FullSince.IsZero() || d.FullSince.After(d.Now) {
			t.Errorf("got %q since %v, at %v", d.Full, d.FullSince, d.Now)
		}
		return d.Full
	}
	s.must(apply(id("a")))
	s.want("full", full(s.store), "")
	held := s.claim(1)
	_, err := s.conn.Exec(t.Context(), strings.ReplaceAll(`
		CREATE FUNCTION $S.no_room() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
			RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $f$;
		CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON $S.tasks EXECUTE FUNCTION $S.no_room();
		CREATE TRIGGER no_room BEFORE INSERT ON $S.sides EXECUTE FUNCTION $S.no_room();`, "$S", s.cfg.Schema))
	s.must(err)
	const why = "PostgreSQL is full: ERROR: could not extend file: No space left on device"
	for verb, write := range map[string]func() error{
		"enqueue": func() error { return apply(id("b")) },
		"many": func() error {
			var tx storage.Tx
			for range 200 {
				tx.Inserts = append(tx.Inserts, insertOf(storage.NewID()))
			}
			return apply(tx)
		},
		"extend": func() error {
			_, err := s.session.Extend(t.Context(), storage.ExtendRequest{
				Leases: []storage.Extension{{Fence: held.Fences[0], For: storage.MinLease, Progress: []byte("p")}},
			})
			return err
		},
	} {
		if err := write(); !errors.Is(err, storage.ErrFull) {
			t.Errorf("%s: got %v, want an ErrFull", verb, err)
		}
		if got := full(s.store); !strings.HasPrefix(got, why) {
			t.Errorf("%s: got %q, want %q", verb, got, why)
		}
	}
	other, _ := opened(t, s.cfg)
	if got := full(other); !strings.HasPrefix(got, why) {
		t.Errorf("another handle: got %q, want %q", got, why)
	}
	_, err = s.conn.Exec(t.Context(), strings.ReplaceAll(
		"DROP TRIGGER no_room ON $S.tasks; DROP TRIGGER no_room ON $S.sides", "$S", s.cfg.Schema))
	s.must(err)
	s.must(apply(id("c")))
	s.want("full with room again", full(s.store), "")
	var rows int
	s.must(s.conn.QueryRow(t.Context(), "SELECT count(*) FROM "+s.cfg.Schema+".sides WHERE queue = 0").Scan(&rows))
	s.want("rows that the trials left", rows, 0)
}

package postgres

import (
	"context"
	"fmt"
	"time"
)

// heldFor is how long a transaction may be open before the operator is warned: vacuum removes no row
// that died after its beginning, and these rows cost more and more.
const heldFor = 20 * time.Second

// mostHeld is how many such transactions the warnings name.
const mostHeld = 3

// held warns of transactions and replication slots that keep vacuum from removing dead rows. It sees
// the transactions of other roles only if this role may (pg_read_all_stats).
func (s *Storage) held(ctx context.Context) (warnings []string) {
	var what string
	err := s.ask(ctx, s.pool, query{
		text: `SELECT x.what FROM (
				SELECT format('the transaction of process %s%s, open since %s', a.pid,
					' (' || nullif(a.application_name, '') || ')', date_trunc('second', a.xact_start)) AS what,
					a.xact_start AS since
				FROM pg_catalog.pg_stat_activity a
				WHERE (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.pid <> pg_backend_pid()
					AND a.datname = current_database() AND a.backend_type = 'client backend'
					AND a.query NOT ILIKE 'VACUUM%'
				UNION ALL
				SELECT format('the prepared transaction %s of %s', p.gid, date_trunc('second', p.prepared)), p.prepared
				FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
				UNION ALL
				SELECT format('the replication slot %s', r.slot_name), '-infinity'
				FROM pg_catalog.pg_replication_slots r WHERE age(r.xmin) > 1000000
			) x WHERE x.since < clock_timestamp() - $1::int8 * interval '1 microsecond' ORDER BY x.since LIMIT $2`,
		args: []any{s.heldFor.Microseconds(), mostHeld},
		scan: each(func() error {
			warnings = append(warnings, fmt.Sprintf("vacuum is held back by %s: tasks get slower until it ends", what))
			return nil
		}, &what),
	})
	if err != nil { // no warning if the catalogs cannot be read
		return nil
	}
	return warnings
}

package difftest

// unmended names differences that are known and being mended; the sequence leaves them out.
var unmended = map[string]bool{
	"a pause that is over":                 true, // is the next moment due in memory
	"due at the same moment":               true, // another order on PostgreSQL
	"collision of a move":                  true, // names the target on PostgreSQL
	"a change that names the state it has": true, // joins the tail where it names a moment, but not on Redis
	"a holder that ends in the same Tx":    true, // is told with its end on PostgreSQL
	"a priority that stays":                true, // joins the tail, but not on Redis
}

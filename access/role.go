package access

import (
	"strings"

	"github.com/midgehq/midge/storage"
)

// Role is what a user is to the tasks; it permits verbs. The zero Role permits nothing.
type Role string

// The roles, from the least to the most.
const (
	// Viewer sees queues, tasks, schedules and runners, but no payloads.
	Viewer Role = "viewer"
	// Worker is for programs that work tasks off: it enqueues, fetches and settles.
	Worker Role = "worker"
	// Operator sees payloads, pauses and resumes queues, and requeues, cancels and moves tasks.
	Operator Role = "operator"
	// Admin may do everything.
	Admin Role = "admin"
)

// Verb is a kind of act that a role may permit.
type Verb string

// The verbs.
const (
	// Read shows sizes, states, errors, schedules and runners.
	Read Verb = "read"
	// Payloads shows parameters, results, progress, checkpoints and headers of tasks.
	Payloads Verb = "payloads"
	// Enqueue adds tasks.
	Enqueue Verb = "enqueue"
	// Work fetches tasks, extends their leases and settles them.
	Work Verb = "work"
	// Operate pauses and resumes queues, requeues, cancels, moves, prioritises and reschedules
	// tasks, and runs schedules.
	Operate Verb = "operate"
	// Alter deletes tasks, queues and schedules, edits tasks, and looks after users and tokens.
	Alter Verb = "alter"
)

// grants is the table of what each role permits.
var grants = map[Role]map[Verb]bool{
	Viewer:   {Read: true},
	Worker:   {Read: true, Payloads: true, Enqueue: true, Work: true},
	Operator: {Read: true, Payloads: true, Operate: true},
	Admin:    {Read: true, Payloads: true, Enqueue: true, Work: true, Operate: true, Alter: true},
}

// Roles lists the roles, from the least to the most.
func Roles() []Role { return []Role{Viewer, Worker, Operator, Admin} }

// Verbs lists the verbs in the order of the table of roles.
func Verbs() []Verb { return []Verb{Read, Payloads, Enqueue, Work, Operate, Alter} }

// May reports whether the role permits the verb. A role or a verb that there is not permits
// nothing.
func (r Role) May(v Verb) bool { return grants[r][v] }

// Check gives an *[storage.InvalidError] where there is no such role.
func (r Role) Check() error {
	if _, ok := grants[r]; !ok {
		return storage.Invalid("role", string(r), "one of %s", listed(Roles()))
	}
	return nil
}

// listed lists names for a message.
func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// User is who acts.
type User struct {
	// Name tells users apart; the audit names them so. A name from a file of users has no space.
	Name string
	// Role says what the user may do.
	Role Role
}

// May reports whether the user's role permits the verb.
func (u User) May(v Verb) bool { return u.Role.May(v) }

package access

import (
	"strings"

	"github.com/midgehq/midge/storage"
)

// Role is a set of permitted verbs that has a name. The zero Role permits nothing.
type Role string

// The roles. Viewer permits least, and Admin permits everything. Worker and Operator permit different verbs.
const (
	// Viewer sees queues, tasks, schedules and runners, but no payloads.
	Viewer Role = "viewer"
	// Worker is for programs that run tasks: it enqueues, fetches and settles.
	Worker Role = "worker"
	// Operator sees payloads, pauses and resumes queues, and requeues, cancels and moves tasks.
	Operator Role = "operator"
	// Admin may do everything.
	Admin Role = "admin"
)

// Verb is a kind of action that a role may permit.
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
	// Alter deletes tasks, queues and schedules, edits tasks, and manages users and tokens.
	Alter Verb = "alter"
)

// grants has the verbs that each role permits.
var grants = map[Role]map[Verb]bool{
	Viewer:   {Read: true},
	Worker:   {Read: true, Payloads: true, Enqueue: true, Work: true},
	Operator: {Read: true, Payloads: true, Operate: true},
	Admin:    {Read: true, Payloads: true, Enqueue: true, Work: true, Operate: true, Alter: true},
}

// Roles lists the roles in the order Viewer, Worker, Operator, Admin.
func Roles() []Role { return []Role{Viewer, Worker, Operator, Admin} }

// Verbs lists the verbs in the order of the table of roles.
func Verbs() []Verb { return []Verb{Read, Payloads, Enqueue, Work, Operate, Alter} }

// May reports whether the role permits the verb. An unknown role permits nothing, and no role permits an
// unknown verb.
func (r Role) May(v Verb) bool { return grants[r][v] }

// Check returns an *[storage.InvalidError] if the role is unknown.
func (r Role) Check() error {
	if _, ok := grants[r]; !ok {
		return storage.Invalid("role", string(r), "one of %s", listed(Roles()))
	}
	return nil
}

// listed joins names for a message.
func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// User is a person with a role.
type User struct {
	// Name identifies the user, and the audit shows it. A name from a file of users has no space.
	Name string
	// Role decides which verbs the user may use.
	Role Role
}

// May reports whether the user's role permits the verb.
func (u User) May(v Verb) bool { return u.Role.May(v) }

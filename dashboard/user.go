package dashboard

import (
	"context"
)

// User is who looks.
type User struct {
	Name string // for the audit
	Role Role
}

// Role says what a user may do.
type Role string

// The roles. A viewer sees all but payloads, an operator sees payloads too and pauses, resumes, requeues,
// cancels and runs, and an admin may do everything.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

func (r Role) valid() bool { return r == Viewer || r == Operator || r == Admin }

type userKey struct{}

func withUser(ctx context.Context, user User) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

func userOf(ctx context.Context) User {
	user, _ := ctx.Value(userKey{}).(User)
	return user
}

// Package access says who may do what to the tasks of a midge: users with roles and a login for
// the pages of a dashboard, tokens for programs, and rules by which fields of payloads are hidden from
// people. The dashboard, the command and servers share it. It keeps nothing in a storage.
//
// A [Role] permits verbs. A [User] has a role, and comes from a file of users ([OpenUsers]) or
// from the login of the application that mounts a dashboard. A [Grant] is what a token permits
// ([OpenTokens]). A [Redaction] hides what no page and no command may show.
package access

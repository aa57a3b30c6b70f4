// Package access decides who may do what with tasks. It has users with roles, their logins to a dashboard,
// tokens for programs, and rules that hide fields of payloads from people. The dashboard, the command and
// servers share it. It keeps nothing in a storage.
//
// A [Role] permits verbs. A [User] has a role, and comes from a file of users ([OpenUsers]) or
// from the login of the application that mounts a dashboard. A token carries a [Grant], its permission
// ([OpenTokens]). A [Redaction] hides the fields that no page and no command may show.
package access

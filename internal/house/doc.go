// Package house holds the tests of the project's own rules, and no code: which
// room imports which, which module is used where, that every exported name is
// documented, that tests do not sleep, and that docs/api.txt shows the exported
// surface. make generate rewrites that file.
package house

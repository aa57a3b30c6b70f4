// Package house tests the project's own rules. It holds only tests: which package may
// import which, which module of others is used where, that every exported name is
// documented, that tests do not sleep, that the check for vulnerabilities fails when it
// must, and that docs/api.txt shows the exported surface. make generate rewrites that
// file.
package house

// Package house holds the tests of the project's own rules, and no code: which
// room imports which, which module is used where, that every exported name is
// documented, that tests do not sleep, that the look for vulnerabilities fails
// where it must, and that docs/api.txt shows the exported surface. make generate
// rewrites that file.
package house

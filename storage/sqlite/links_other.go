//go:build !unix

package sqlite

// checkLinks refuses a file of several names, where the system tells: here it does not.
func checkLinks(string) error { return nil }

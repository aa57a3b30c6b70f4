//go:build !unix

package sqlite

// checkLinks refuses a file with several names where the system tells them: this one does not.
func checkLinks(string) error { return nil }

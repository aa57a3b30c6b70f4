//go:build !long

package modernc_test

// kills is how many processes are killed.
const kills = 40

//go:build !linux

package ledger

// MaxRSS is not known here.
func MaxRSS() int64 { return 0 }

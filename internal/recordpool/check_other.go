//go:build !race

package recordpool

const checked = false

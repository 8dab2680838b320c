package recordpool

import "testing"

// The client that this is built with decodes batch by batch.
func TestSlabsAreBatches(t *testing.T) {
	if !slabsAreBatches() {
		t.Fatal("the client lays batches side by side now, so that each record has to be looked at; see batch.go")
	}
}

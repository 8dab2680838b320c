//go:build race

package recordpool

// checked has every record of a run looked at: one that is given back twice would have its slab used again while another is out.
const checked = true

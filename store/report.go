package store

// VerifyOptions say how much Verify reads.
type VerifyOptions struct {
	// Deep reads everything: every word of a live segment must be in the
	// bitmap, counts must be exact, and Pebble's own checks must pass. Without
	// it only headers, checksums, the log's chain and the registry are read.
	Deep bool
	// Progress, if not nil, is called now and then with the share done, 0 to 1.
	Progress func(done float64)
}

// A Report is what Verify found.
type Report struct {
	Deep   bool    `json:"deep"`
	URLs   int64   `json:"urls"` // exact; -1 if it could not be told
	Faults []Fault `json:"faults"`
	// Notes are facts that are no faults, for example a torn tail.
	Notes []string `json:"notes"`
}

// OK reports that no fault was found.
func (r *Report) OK() bool { return len(r.Faults) == 0 }

// A Fault is one thing that is not as it must be, and what it means.
type Fault struct {
	Path        string `json:"path"`
	Offset      int64  `json:"offset"` // in bytes; -1 if it concerns the whole file
	Reason      string `json:"reason"`
	Consequence string `json:"consequence"`
}

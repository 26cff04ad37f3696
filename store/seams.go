package store

import "dedupstore/internal/seam"

// SetSeams replaces the real world under a store by what a test of this
// module wants there. Nobody outside the module can make a seam.Seams.
func SetSeams(o *Options, s seam.Seams) { o.seams = s }

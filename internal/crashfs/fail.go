package crashfs

import "sync/atomic"

// Failures says which calls fail.
type Failures struct {
	Err    error
	N      int64         // the first that does, from 1, of those that can
	Sticky bool          // all behind it do too
	Can    func(Op) bool // whether a call can fail

	calls atomic.Int64
	where atomic.Pointer[string]
}

// Fail makes calls fail from now on.
func (d *Disk) Fail(f *Failures) {
	d.SetHook(func(op Op) error {
		if !f.Can(op) {
			return nil
		}
		at := f.calls.Add(1)
		if at == f.N {
			what := op.Kind + " " + op.Path
			f.where.Store(&what)
		}
		if at == f.N || f.Sticky && at > f.N {
			return f.Err
		}
		return nil
	})
}

// Calls returns how many calls there were that can fail.
func (f *Failures) Calls() int64 { return f.calls.Load() }

// Where returns the kind and the path of the first that failed, "" if none did.
func (f *Failures) Where() string {
	if where := f.where.Load(); where != nil {
		return *where
	}
	return ""
}

package urlkey

import (
	"bytes"
	"slices"
)

// A param is a parameter of a query, dst[from:to], with its name first.
type param struct{ from, name, to int }

// paramAt returns the parameter that begins at from.
func paramAt(dst []byte, from int) param {
	to := len(dst)
	if amp := bytes.IndexByte(dst[from:], '&'); amp >= 0 {
		to = from + amp
	}
	name := to
	if eq := bytes.IndexByte(dst[from:to], '='); eq >= 0 {
		name = from + eq
	}
	return param{from, name, to}
}

// dropParams drops the parameters that drop names, and the question mark if
// none is left.
func dropParams(dst []byte, at int, drop func(name, value []byte) bool) []byte {
	q := query(dst, at)
	if q == len(dst) {
		return dst
	}
	w, kept := q+1, false // dst[:w] is done
	for from := q + 1; from <= len(dst); {
		p := paramAt(dst, from)
		from = p.to + 1
		if drop(dst[p.from:p.name], dst[min(p.name+1, p.to):p.to]) {
			continue
		}
		if kept {
			dst[w] = '&'
			w++
		}
		w += copy(dst[w:], dst[p.from:p.to])
		kept = true
	}
	if !kept {
		w = q
	}
	return dst[:w]
}

// sortQuery sorts by name. Parameters of one name keep their order, in which
// some servers read them as a list.
func sortQuery(dst []byte, at int) []byte {
	q := query(dst, at)
	if q == len(dst) {
		return dst
	}
	var few [32]param
	params, sorted, empty := few[:0], true, 0
	for from := q + 1; from <= len(dst); {
		p := paramAt(dst, from)
		from = p.to + 1
		if p.from == p.to {
			empty++
			continue
		}
		if n := len(params); n > 0 {
			last := params[n-1]
			sorted = sorted && bytes.Compare(dst[last.from:last.name], dst[p.from:p.name]) <= 0
		}
		params = append(params, p)
	}
	if len(params) == 0 {
		return dst[:q]
	}
	if sorted && empty == 0 {
		return dst
	}
	slices.SortStableFunc(params, func(a, b param) int {
		return bytes.Compare(dst[a.from:a.name], dst[b.from:b.name])
	})
	end := len(dst) // the new query is put together behind the old one
	for i, p := range params {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = append(dst, dst[p.from:p.to]...)
	}
	return cut(dst, q+1, end)
}

// dropSessions drops what is on record as a session identifier.
func dropSessions(dst []byte, at int) []byte {
	return dropParams(dropPathSession(dst, at), at, isSession)
}

// dropPathSession drops ";jsessionid=..." of every path segment, unless that
// would leave a dot segment, and so another path.
func dropPathSession(dst []byte, at int) []byte {
	const session = ";jsessionid="
	for _, from := authority(dst, at); ; {
		semicolon := bytes.IndexByte(dst[from:query(dst, at)], ';')
		if semicolon < 0 {
			return dst
		}
		from += semicolon
		end := query(dst, at)
		if end-from < len(session) || !bytes.EqualFold(dst[from:from+len(session)], []byte(session)) {
			from++
			continue
		}
		to := from + 1
		for to < end && dst[to] != ';' && dst[to] != '/' {
			to++
		}
		segment := bytes.LastIndexByte(dst[:from], '/') + 1
		if (to == end || dst[to] == '/') && isDots(dst[segment:from]) {
			from++
			continue
		}
		dst = cut(dst, from, to)
	}
}

func dropTracking(dst []byte, at int) []byte { return dropParams(dst, at, isTracking) }

func dropBusters(dst []byte, at int) []byte { return dropParams(dst, at, isBuster) }

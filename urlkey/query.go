package urlkey

import (
	"bytes"
	"slices"
)

// A param is a parameter of a query, dst[from:to], with its name first.
type param struct{ from, name, to int }

// compare compares the names of two parameters of dst.
func (p param) compare(q param, dst []byte) int {
	return bytes.Compare(dst[p.from:p.name], dst[q.from:q.name])
}

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
func dropParams(u *parts, drop func(name, value []byte) bool) {
	if u.query == len(u.dst) {
		return
	}
	dst := u.dst
	w, kept := u.query+1, false // dst[:w] is done
	for from := w; from <= len(dst); {
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
		w = u.query
	}
	u.dst = dst[:w]
}

// sortQuery sorts by name. Parameters of one name keep their order, in which
// some servers read them as a list.
func sortQuery(u *parts) {
	if u.query == len(u.dst) {
		return
	}
	var few [32]param
	params, isDone := few[:0], true
	for from := u.query + 1; from <= len(u.dst); {
		p := paramAt(u.dst, from)
		from = p.to + 1
		if p.from == p.to {
			isDone = false
			continue
		}
		if n := len(params); n > 0 && params[n-1].compare(p, u.dst) > 0 {
			isDone = false
		}
		params = append(params, p)
	}
	switch {
	case len(params) == 0:
		u.dst = u.dst[:u.query]
		return
	case isDone:
		return
	}
	slices.SortStableFunc(params, func(a, b param) int { return a.compare(b, u.dst) })
	dst := u.dst // the new query is put together behind the old one
	for i, p := range params {
		if i > 0 {
			dst = append(dst, '&')
		}
		dst = append(dst, dst[p.from:p.to]...)
	}
	u.dst = append(dst[:u.query+1], dst[len(u.dst):]...)
}

// dropPathSession drops ";jsessionid=..." of every path segment, unless that
// would leave a dot segment, and so another path.
func dropPathSession(u *parts) {
	session := []byte(";jsessionid=")
	for from := u.path; ; {
		semicolon := bytes.IndexByte(u.dst[from:u.query], ';')
		if semicolon < 0 {
			return
		}
		from += semicolon
		to := from + 1
		for to < u.query && u.dst[to] != ';' && u.dst[to] != '/' {
			to++
		}
		segment := bytes.LastIndexByte(u.dst[:from], '/') + 1
		isLast := to == u.query || u.dst[to] == '/'
		if to-from < len(session) || !bytes.EqualFold(u.dst[from:from+len(session)], session) ||
			isLast && isDots(u.dst[segment:from]) {
			from = to
			continue
		}
		u.cut(from, to)
	}
}

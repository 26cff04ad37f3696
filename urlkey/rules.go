package urlkey

import (
	"bytes"
	"slices"
)

// A Rule is one thing that profile crawl does beyond std.
type Rule struct {
	Name    string // as in a switch
	What    string // what it does, in a few words
	Default bool   // whether crawl without switches has it
}

// Rules returns the rules of the newest crawl, in the order they are applied.
func Rules() []Rule { return slices.Clone(rules[:]) }

// A rule brings an http or https URL in std form into another one. One pass of
// all rules reaches a fixed point: each leaves what the earlier ones have done,
// and what std has.
type rule int

const (
	ruleScheme rule = iota
	ruleWWW
	rulePct
	ruleSession
	ruleTracking
	ruleBust
	ruleQuery
	ruleSlash
)

var rules = [...]Rule{
	ruleScheme:   {"scheme", "http is https, and has its default port", true},
	ruleWWW:      {"www", "a leading www. of the host is dropped if a dot is left behind it", true},
	rulePct:      {"pct", "needless percent-encoding is decoded, the rest is in upper case", true},
	ruleSession:  {"session", "session identifiers in the path and the query are dropped", true},
	ruleTracking: {"tracking", "tracking parameters are dropped", true},
	ruleBust:     {"bust", "cache-busting parameters are dropped", false},
	ruleQuery:    {"query", "parameters are sorted by name, and empty ones dropped", true},
	ruleSlash:    {"slash", "the slashes that end a path are dropped", true},
}

// settled reports, at no cost, that no rule changes the URL in std form, in which
// there is no userinfo and marks are what appendCommon has seen. It says no where
// it would have to look closer.
func settled(url []byte, marks uint8) bool {
	const prefix = "https://"
	return marks == 0 && len(url) > len(prefix) && url[4] == 's' && url[len(prefix)] != 'w' && url[len(url)-1] != '/'
}

// apply is a switch, as u would escape to the heap through a function value.
func (r rule) apply(u *parts) {
	switch r {
	case ruleScheme:
		secureScheme(u)
	case ruleWWW:
		dropWWW(u)
	case rulePct:
		decodeUnreserved(u)
	case ruleSession:
		dropPathSession(u)
		dropParams(u, isSession)
	case ruleTracking:
		dropParams(u, isTracking)
	case ruleBust:
		dropParams(u, isBuster)
	case ruleQuery:
		sortQuery(u)
	case ruleSlash:
		dropSlash(u)
	}
}

// The parts of an http or https URL in std form, which is dst[at:].
type parts struct {
	dst   []byte
	at    int
	host  int // host and port are dst[host:path]
	path  int // dst[path:query] begins with a slash
	query int // dst[query:] begins with a question mark, or is empty
}

// split finds the parts of dst[at:].
func split(dst []byte, at int) parts {
	u := parts{dst: dst, at: at, query: len(dst)}
	u.host = at + bytes.IndexByte(dst[at:], '/') + len("//")
	u.path = u.host + bytes.IndexByte(dst[u.host:], '/')
	u.host += bytes.LastIndexByte(dst[u.host:u.path], '@') + 1
	if q := bytes.IndexByte(dst[u.path:], '?'); q >= 0 {
		u.query = u.path + q
	}
	return u
}

// cut drops dst[from:to], which lies within one part or is at its begin.
func (u *parts) cut(from, to int) {
	u.dst = append(u.dst[:from], u.dst[to:]...)
	for _, at := range []*int{&u.host, &u.path, &u.query} {
		if *at >= to {
			*at -= to - from
		}
	}
}

// secureScheme makes https of http: one site is rarely two, and most URLs of
// today say https.
func secureScheme(u *parts) {
	s := u.at + len("http")
	if u.dst[s] == 's' {
		return
	}
	u.dst = slices.Insert(u.dst, s, 's')
	u.host, u.path, u.query = u.host+1, u.path+1, u.query+1
	if port := []byte(":443"); bytes.HasSuffix(u.dst[u.host:u.path], port) {
		u.cut(u.path-len(port), u.path)
	}
}

// dropWWW drops what stands before "example.com" and leaves "www.com" alone.
func dropWWW(u *parts) {
	const www = "www."
	drop := u.host
	for bytes.HasPrefix(u.dst[drop:u.path], []byte(www)) {
		rest := u.dst[drop+len(www) : u.path]
		dot := bytes.IndexByte(rest, '.')
		if dot <= 0 || dot == len(rest)-1 || rest[dot+1] == ':' {
			break
		}
		drop += len(www)
	}
	if drop > u.host {
		u.dst = append(u.dst[:u.host], u.dst[drop:]...)
		u.path, u.query = u.path-(drop-u.host), u.query-(drop-u.host)
	}
}

// decodeUnreserved is RFC 3986, 6.2.2.1 and 6.2.2.2, for path and query. It
// decodes nothing that would, with what stands before it, make a new encoding:
// "%2%65" is not "%2e".
func decodeUnreserved(u *parts) {
	first := bytes.IndexByte(u.dst[u.path:], '%')
	if first < 0 {
		return
	}
	dst, query := u.dst, u.query
	r := u.path + first
	w := r // dst[:w] is done, dst[r:] is to be read
	for r < len(dst) {
		c := dst[r]
		if r == u.query {
			query = w
		}
		if c != '%' || r+2 >= len(dst) || !isHex(dst[r+1]) || !isHex(dst[r+2]) {
			dst[w] = c
			r, w = r+1, w+1
			continue
		}
		plain := unhex(dst[r+1])<<4 | unhex(dst[r+2])
		dangles := dst[w-1] == '%' || dst[w-2] == '%' // it begins no encoding yet
		if isUnreserved(plain) && !(isHex(plain) && dangles) {
			dst[w] = plain
			r, w = r+3, w+1
			continue
		}
		dst[w], dst[w+1], dst[w+2] = '%', upperHex(dst[r+1]), upperHex(dst[r+2])
		r, w = r+3, w+3
	}
	if u.query == len(dst) {
		query = w
	}
	u.dst, u.query = dst[:w], query
}

func isUnreserved(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

func unhex(c byte) byte {
	if isDigit(c) {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}

func upperHex(c byte) byte {
	if isDigit(c) {
		return c
	}
	return c &^ 0x20
}

// dropSlash leaves the one slash that is the whole path.
func dropSlash(u *parts) {
	from := u.query
	for from-1 > u.path && u.dst[from-1] == '/' {
		from--
	}
	if from < u.query {
		u.dst = append(u.dst[:from], u.dst[u.query:]...)
		u.query = from
	}
}

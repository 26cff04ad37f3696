package urlkey

import "bytes"

// A Rule is one thing that profile crawl does beyond std.
type Rule struct {
	Name    string // as in a switch
	What    string // what it does, in a few words
	Default bool   // whether crawl without switches has it
}

// Rules returns the rules of the newest crawl, in the order they are applied.
func Rules() []Rule {
	all := make([]Rule, len(rules))
	for i, r := range rules {
		all[i] = r.Rule
	}
	return all
}

// A rule brings the http or https URL in std form at dst[at:] into another one.
// One pass of all rules reaches a fixed point: each leaves what the earlier ones
// have done, and what std has.
type rule struct {
	Rule
	apply func(dst []byte, at int) []byte
}

var rules = []rule{
	{Rule{"scheme", "https is http, and has its default port", true}, plainScheme},
	{Rule{"www", "a leading www. of the host is dropped, if a dot is left behind it", true}, dropWWW},
	{Rule{"pct", "percent-encoding is dropped where RFC 3986 needs none, and is upper case elsewhere", true}, decodeUnreserved},
	{Rule{"session", "session identifiers in the path and the query are dropped", true}, dropSessions},
	{Rule{"tracking", "tracking parameters are dropped", true}, dropTracking},
	{Rule{"bust", "cache-busting parameters are dropped", false}, dropBusters},
	{Rule{"query", "parameters are sorted by name, and empty ones dropped", true}, sortQuery},
	{Rule{"slash", "the slashes that end a path are dropped", true}, dropSlash},
}

// isWeb reports whether a URL in std form is one of http or https.
func isWeb(url []byte) bool { return webScheme(url) != "" }

// authority returns the bounds of host and port in an http or https URL.
func authority(dst []byte, at int) (host, end int) {
	host = at + bytes.IndexByte(dst[at:], '/') + len("//")
	end = host + bytes.IndexByte(dst[host:], '/')
	host += bytes.LastIndexByte(dst[host:end], '@') + 1
	return host, end
}

// query returns where the query of a URL begins, at its question mark, or where
// the URL ends.
func query(dst []byte, at int) int {
	if q := bytes.IndexByte(dst[at:], '?'); q >= 0 {
		return at + q
	}
	return len(dst)
}

// cut drops dst[from:to].
func cut(dst []byte, from, to int) []byte {
	return append(dst[:from], dst[to:]...)
}

// plainScheme makes http of https: one site is rarely two, and old lists and
// SURT keys say http.
func plainScheme(dst []byte, at int) []byte {
	s := at + len("http")
	if dst[s] != 's' {
		return dst
	}
	dst = cut(dst, s, s+1)
	_, end := authority(dst, at)
	if bytes.HasSuffix(dst[:end], []byte(":80")) {
		dst = cut(dst, end-len(":80"), end)
	}
	return dst
}

// dropWWW drops what stands before "example.com" and leaves "www.com" alone.
func dropWWW(dst []byte, at int) []byte {
	const www = "www."
	host, end := authority(dst, at)
	drop := host
	for bytes.HasPrefix(dst[drop:end], []byte(www)) {
		rest := dst[drop+len(www) : end]
		dot := bytes.IndexByte(rest, '.')
		if dot <= 0 || dot == len(rest)-1 || rest[dot+1] == ':' {
			break
		}
		drop += len(www)
	}
	if drop == host {
		return dst
	}
	return cut(dst, host, drop)
}

// decodeUnreserved is RFC 3986, 6.2.2.1 and 6.2.2.2, for path and query. It
// decodes nothing that would, with what stands before it, make a new encoding:
// "%2%65" is not "%2e".
func decodeUnreserved(dst []byte, at int) []byte {
	if bytes.IndexByte(dst[at:], '%') < 0 {
		return dst
	}
	_, r := authority(dst, at)
	w := r // dst[:w] is done, dst[r:] is to be read
	for r < len(dst) {
		c := dst[r]
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
	return dst[:w]
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
func dropSlash(dst []byte, at int) []byte {
	end := query(dst, at)
	if dst[end-1] != '/' {
		return dst
	}
	_, root := authority(dst, at)
	from := end
	for from-1 > root && dst[from-1] == '/' {
		from--
	}
	return cut(dst, from, end)
}

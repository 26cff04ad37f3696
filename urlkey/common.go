package urlkey

// The fast path: one pass over a URL of a common shape finds that its std form
// is the URL itself, or differs in what needs no parser: blanks around it, upper
// case in scheme and host, a default port, a missing path, bytes that a path or
// query must spell with a percent sign, a fragment. It takes only what it is sure
// of, and leaves the rest to the parser; FuzzFastPath holds
// the two together.

// What a byte may be.
const (
	inHost  = 1 << iota // of a host, upper case included
	isUpper             // an upper-case letter
	inPath              // of a path segment, as it is
	toPath              // of a path segment, percent-encoded
	inQuery             // of a query, as it is
	toQuery             // of a query, percent-encoded
	isMark              // what a rule of crawl may change in a path or query
)

// class says of every byte what it may be. The sets are those of the URL
// Standard: path and query hold printable ASCII, and the rest percent-encoded,
// with some of the printable; a backslash is a slash in a path; tabs and line
// ends are dropped everywhere.
var class = func() (class [256]uint8) {
	for c := range class {
		class[c] = toPath | toQuery
		if '!' <= c && c <= '~' {
			class[c] = inPath | inQuery
		}
	}
	for _, c := range "\"<>^`{}" {
		class[c] ^= inPath | toPath
	}
	for _, c := range "\"<>'" {
		class[c] ^= inQuery | toQuery
	}
	for _, c := range "#/?\\" {
		class[c] &^= inPath
	}
	class['#'] = 0
	class['\t'], class['\n'], class['\r'] = 0, 0, 0
	for _, c := range "%;" {
		class[c] |= isMark
	}
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-._" {
		class[c] |= inHost
	}
	for c := 'A'; c <= 'Z'; c++ {
		class[c] |= inHost | isUpper
	}
	return class
}()

// appendCommon appends the std form of url if it is of a common shape. Marks are
// zero if no rule has to look into its path or query.
func appendCommon[T string | []byte](dst []byte, url T) (out []byte, marks uint8, ok bool) {
	for len(url) > 0 && url[0] <= ' ' {
		url = url[1:]
	}
	for len(url) > 0 && url[len(url)-1] <= ' ' {
		url = url[:len(url)-1]
	}
	scheme := webScheme(url)
	if scheme == "" {
		return dst, 0, false
	}
	host := len(scheme)
	asIs := string(url[:host]) == scheme

	i, seen := host, uint8(0)
	for i < len(url) && class[url[i]]&inHost != 0 {
		seen |= class[url[i]]
		i++
	}
	hostEnd := i
	if !commonHost(url[host:hostEnd]) {
		return dst, 0, false
	}
	portEnd, isDefault, ok := commonPort(url, hostEnd, scheme)
	if !ok {
		return dst, 0, false
	}
	end, marks, ok := commonPath(url, portEnd)
	if !ok {
		return dst, 0, false
	}
	noPath := portEnd == len(url) || url[portEnd] != '/'
	isPlain := marks&(toPath|toQuery) == 0
	if asIs && seen&isUpper == 0 && !isDefault && !noPath && isPlain {
		return append(dst, url[:end]...), marks, true
	}

	dst = append(dst, scheme...)
	at := len(dst)
	dst = append(dst, url[host:hostEnd]...)
	lower(dst[at:])
	if !isDefault {
		dst = append(dst, url[hostEnd:portEnd]...)
	}
	if noPath {
		dst = append(dst, '/')
	}
	if isPlain {
		return append(dst, url[portEnd:end]...), marks, true
	}
	return appendEscaped(dst, url[portEnd:end]), marks, true
}

// webScheme returns "http://" or "https://" if url begins with it, in any case.
func webScheme[T string | []byte](url T) string {
	const plain, secure = "http://", "https://"
	if len(url) < len(secure) || url[0]|0x20 != 'h' || url[1]|0x20 != 't' || url[2]|0x20 != 't' || url[3]|0x20 != 'p' {
		return ""
	}
	if url[4] == ':' && url[5] == '/' && url[6] == '/' {
		return plain
	}
	if url[4]|0x20 == 's' && url[5] == ':' && url[6] == '/' && url[7] == '/' {
		return secure
	}
	return ""
}

// commonHost takes names, and IPv4 addresses in their canonical form. A name
// whose last label begins with a digit may be another form of an address.
func commonHost[T string | []byte](host T) bool {
	if len(host) == 0 || host[len(host)-1] == '.' {
		return false
	}
	last := len(host) - 1
	for last > 0 && host[last-1] != '.' {
		last--
	}
	return !isDigit(host[last]) || isIPv4(host)
}

// isIPv4 takes four decimal numbers below 256 without leading zeros.
func isIPv4[T string | []byte](host T) bool {
	parts, value, digits := 1, 0, 0
	for i := range len(host) {
		c := host[i]
		switch {
		case c == '.':
			if digits == 0 {
				return false
			}
			parts, value, digits = parts+1, 0, 0
		case !isDigit(c), digits > 0 && value == 0:
			return false
		default:
			value, digits = value*10+int(c-'0'), digits+1
			if value > 255 {
				return false
			}
		}
	}
	return parts == 4 && digits > 0
}

// commonPort finds the end of the port, if there is one after the host, and
// whether it is the scheme's own.
func commonPort[T string | []byte](url T, hostEnd int, scheme string) (end int, isDefault, ok bool) {
	if hostEnd == len(url) || url[hostEnd] != ':' {
		return hostEnd, false, true
	}
	port := 0
	for end = hostEnd + 1; end < len(url) && isDigit(url[end]); end++ {
		port = port*10 + int(url[end]-'0')
		if port == 0 || port > 65535 {
			return 0, false, false
		}
	}
	if port == 0 {
		return 0, false, false
	}
	return end, port == defaultPort(scheme), true
}

func defaultPort(scheme string) int {
	if scheme == "http://" {
		return 80
	}
	return 443
}

// commonPath finds the end of path and query, which begin at i.
func commonPath[T string | []byte](url T, i int) (end int, marks uint8, ok bool) {
	for i < len(url) && url[i] == '/' {
		i++
		segment := i
		for i < len(url) && class[url[i]]&(inPath|toPath) != 0 {
			marks |= class[url[i]] & (toPath | isMark)
			i++
		}
		if segment < i && (url[segment] == '.' || url[segment] == '%') && isDots(url[segment:i]) {
			return 0, 0, false
		}
	}
	if i < len(url) && url[i] == '?' {
		marks |= isMark
		i++
		for i < len(url) && class[url[i]]&(inQuery|toQuery) != 0 {
			marks |= class[url[i]] & toQuery
			i++
		}
	}
	return i, marks, i == len(url) || url[i] == '#'
}

// appendEscaped appends path and query, percent-encoded where they have to be.
func appendEscaped[T string | []byte](dst []byte, rest T) []byte {
	const digits = "0123456789ABCDEF"
	escape := uint8(toPath)
	for i := range len(rest) {
		c := rest[i]
		if c == '?' {
			escape = toQuery
		}
		if class[c]&escape == 0 {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', digits[c>>4], digits[c&15])
	}
	return dst
}

// isDots reports whether a path segment is . or .., a dot spelled %2e or not.
func isDots[T string | []byte](segment T) bool {
	dots := 0
	for i := 0; i < len(segment); i++ {
		switch {
		case segment[i] == '.':
		case i+2 < len(segment) && segment[i] == '%' && segment[i+1] == '2' && segment[i+2]|0x20 == 'e':
			i += 2
		default:
			return false
		}
		dots++
	}
	return dots == 1 || dots == 2
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// lower brings ASCII letters into lower case, in place.
func lower(b []byte) {
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c | 0x20
		}
	}
}

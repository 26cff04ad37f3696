package urlkey

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/nlnwa/whatwg-url/url"
)

// The slow path: the parser of the URL Standard, and what of the standard it
// does not do by itself. Each difference is one function here.

// pathSet percent-encodes "^" in a path too, as the standard has it since 2024.
var pathSet = url.WithPathPercentEncodeSet(url.PathPercentEncodeSet.Set('^'))

// appendParsed appends the std form of raw.
func appendParsed(dst []byte, raw string) ([]byte, error) {
	raw = escapeInvalid(raw)
	if len(raw) > maxBytes {
		return dst, tooLong()
	}
	u, err := newParser().Parse(raw)
	if err != nil {
		return dst, parseError(err)
	}
	at := len(dst)
	dst = append(dst, u.Href(true)...)
	if u.OpaquePath() {
		end := at + len(u.Protocol()) + len(u.Pathname())
		dst = escapeLastBlank(dst, end)
	}
	return dst, nil
}

// escapeInvalid percent-encodes the bytes that are no UTF-8. The standard knows
// no bytes, only code points, and a decoder before it would make one replacement
// character of all of them, and one URL of many pages.
func escapeInvalid(raw string) string {
	if utf8.ValidString(raw) {
		return raw
	}
	var b strings.Builder
	for i, r := range raw {
		if r == utf8.RuneError && !strings.HasPrefix(raw[i:], "\uFFFD") {
			fmt.Fprintf(&b, "%%%02X", raw[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escapeLastBlank spells a blank before end, which ends an opaque path, %20: it
// must not be trimmed when what followed it is gone.
func escapeLastBlank(dst []byte, end int) []byte {
	if dst[end-1] != ' ' {
		return dst
	}
	rest := string(dst[end:])
	return append(append(dst[:end-1], "%20"...), rest...)
}

// newParser returns a parser for one URL: what its two hooks know of the host is
// of that URL.
func newParser() url.Parser {
	var hidden string // the host, if the parser must not look into it
	return url.NewParser(pathSet,
		url.WithPreParseHostFunc(func(u *url.Url, host string) (shown string) {
			if u.IsSpecialScheme() {
				shown, hidden = showHost(host)
				return shown
			}
			return closeBrackets(host)
		}),
		url.WithPostParseHostFunc(func(_ *url.Url, host string) string {
			if hidden != "" {
				return hidden
			}
			return host
		}))
}

// showHost returns what the parser is shown of the host of a special scheme, and
// what the host is in truth, if that is not for the parser to say. Of a host in
// ASCII that is no address the standard asks lower case, no forbidden character,
// and no more: a label xn-- need not be good Punycode, which the parser checks by
// the Unicode version that it knows, and a sign makes no number, as it does there.
func showHost(host string) (shown, hidden string) {
	plain, ok := decodeASCII(host)
	switch {
	case !ok:
		return closeBrackets(host), ""
	case !endsInNumber(plain):
		return strings.ReplaceAll(plain, "xn--", "xn-0") + ".z", plain
	case strings.ContainsAny(plain, "+-"):
		return "x.1", "" // which is refused
	}
	return plain, ""
}

// closeBrackets makes the parser refuse brackets inside brackets, which it
// would strip.
func closeBrackets(host string) string {
	if strings.HasPrefix(host, "[") && strings.Count(host, "[")+strings.Count(host, "]") > 2 {
		return "["
	}
	return host
}

// endsInNumber is the standard's "ends in a number" checker.
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := host[strings.LastIndexByte(host, '.')+1:]
	is := isDigit
	if strings.HasPrefix(last, "0x") {
		last, is = "0"+last[2:], isHex
	}
	return last != "" && all([]byte(last), is)
}

// decodeASCII decodes a host, and brings it into lower case, if all of it is in
// ASCII, and nothing in it decodes to a percent sign.
func decodeASCII(host string) (string, bool) {
	plain := make([]byte, 0, len(host))
	for i := 0; i < len(host); i++ {
		c := host[i]
		if c == '%' && i+2 < len(host) && isHex(host[i+1]) && isHex(host[i+2]) {
			c = unhex(host[i+1])<<4 | unhex(host[i+2])
			i += 2
		}
		if c >= utf8.RuneSelf || c == '%' || c == '[' {
			return "", false
		}
		plain = append(plain, c)
	}
	lower(plain)
	return string(plain), len(plain) > 0
}

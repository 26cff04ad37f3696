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

var parser = url.NewParser(pathSet, url.WithPreParseHostFunc(closeBrackets))

// appendParsed appends the std form of raw.
func appendParsed(dst []byte, raw string) ([]byte, error) {
	raw = escapeInvalid(raw)
	u, err := parserFor(raw).Parse(raw)
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

// closeBrackets makes the parser refuse brackets inside brackets, which it
// would strip.
func closeBrackets(_ *url.Url, host string) string {
	if strings.HasPrefix(host, "[") && strings.Count(host, "[")+strings.Count(host, "]") > 2 {
		return "["
	}
	return host
}

// parserFor returns a parser for raw. Of a host in ASCII the standard asks lower
// case and no more: a label xn-- need not be good Punycode. The parser would
// look into it, with the Unicode version that it knows, so that such a label is
// hidden from it.
func parserFor(raw string) url.Parser {
	if !strings.Contains(raw, "--") && !strings.Contains(raw, "%") {
		return parser // no label is xn--, nor decodes to it
	}
	var hidden string // the host as it will be
	return url.NewParser(pathSet,
		url.WithPreParseHostFunc(func(u *url.Url, host string) string {
			if plain, ok := decodeASCII(host); ok && u.IsSpecialScheme() {
				hidden = plain
				return strings.ReplaceAll(plain, "xn--", "xn-0")
			}
			return closeBrackets(u, host)
		}),
		url.WithPostParseHostFunc(func(_ *url.Url, host string) string {
			if hidden != "" {
				return hidden
			}
			return host
		}))
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
	return string(plain), true
}

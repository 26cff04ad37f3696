package urlkey

// maxBytes is the longest URL that std and crawl take. The parser's time grows
// with the square of the length: see TestLongestURL.
const maxBytes = 32 << 10 // 32 KiB

// Append appends the canonical form of url to dst. It fails with ErrInvalid,
// and returns dst unchanged, if url is no absolute URL, is empty, or is longer
// than 32 KiB, which profile none alone does not mind. dst must not overlap url.
//
// The common shapes of http and https URLs cost tens of nanoseconds and no
// allocation; the others are parsed, for some microseconds.
func (p *Profile) Append(dst, url []byte) ([]byte, error) { return appendTo(p, dst, url) }

// AppendString is Append for a string.
func (p *Profile) AppendString(dst []byte, url string) ([]byte, error) {
	return appendTo(p, dst, url)
}

func appendTo[T string | []byte](p *Profile, dst []byte, url T) ([]byte, error) {
	if p.bytes {
		if len(url) == 0 {
			return dst, invalid("it is empty")
		}
		return append(dst, url...), nil
	}
	out, err := appendStd(dst, url)
	if err != nil {
		return dst, err
	}
	if len(p.active) > 0 && isWeb(out[len(dst):]) {
		for i := range p.active {
			out = p.active[i].apply(out, len(dst))
		}
	}
	return out, nil
}

// appendStd appends the form of profile std.
func appendStd[T string | []byte](dst []byte, url T) ([]byte, error) {
	if len(url) > maxBytes {
		return dst, invalid("it is longer than 32 KiB")
	}
	if out, ok := appendCommon(dst, url); ok {
		return out, nil
	}
	return appendParsed(dst, string(url))
}

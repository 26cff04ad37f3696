package urlkey

// maxBytes is the longest URL, and form, that std and crawl take. The parser's
// time grows with the square of the length: see BenchmarkLongest. Common servers
// refuse such lines too.
const maxBytes = 8 << 10 // 8 KiB

// Append appends the canonical form of url to dst. It fails with ErrInvalid,
// and returns dst unchanged, if url is no absolute URL, is empty, or is longer
// than 8 KiB, which profile none alone does not mind. dst must not overlap url.
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
	out, marks, err := appendStd(dst, url)
	if err != nil {
		return dst, err
	}
	if form := out[len(dst):]; len(p.active) > 0 && !settled(form, marks) && webScheme(form) != "" {
		u := split(out, len(dst))
		for _, r := range p.active {
			r.apply(&u)
		}
		out = u.dst
	}
	if len(out)-len(dst) > maxBytes {
		return dst, tooLong() // as would be the form's own form
	}
	return out, nil
}

// appendStd appends the form of profile std, which may be longer than maxBytes,
// and returns marks as appendCommon does: not zero if it had to be parsed.
func appendStd[T string | []byte](dst []byte, url T) (out []byte, marks uint8, err error) {
	if len(url) > maxBytes {
		return dst, 0, tooLong()
	}
	if out, marks, ok := appendCommon(dst, url); ok {
		return out, marks, nil
	}
	out, err = appendParsed(dst, string(url))
	return out, isMark, err
}

func tooLong() error { return invalid("it is longer than 8 KiB") }

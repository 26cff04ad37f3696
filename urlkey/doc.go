// Package urlkey brings URLs into canonical form, so that two spellings of one
// page are one key.
//
//	profile, err := urlkey.Parse("crawl")
//	key, err := profile.AppendString(nil, "HTTP://www.example.com:80/a/?b=1&a=2#top")
//	// https://example.com/a?a=2&b=1
//
// There are three profiles:
//
//	none    the bytes as they are
//	std     what the URL Standard (https://url.spec.whatwg.org) writes for the
//	        URL, without its fragment. It names the same page, and nothing of it
//	        is decoded
//	crawl   std, and then rules, each of which can be switched: it merges what is
//	        the same page on almost all sites, and so is wrong on a few
//
// Rules lists those of crawl, and docs/KEYS.md says what each does and what it may
// merge wrongly.
//
// A profile has a version, and its full name, String, is what to record beside
// keys. What a recorded name does never changes: another rule, or one parameter
// more in a list, is another version.
//
// # Guarantees
//
//   - A canonical form is its own: Append of what Append returned is the same. That
//     holds for any bytes, and every profile (FuzzIdempotent).
//   - What is no absolute URL is refused with ErrInvalid, and never panics.
//   - Bytes that are no UTF-8 stay different: they are percent-encoded, one by one.
//
// # Not guaranteed
//
//   - That two URLs with different forms are different pages: no profile asks the
//     network, or knows which of a site's parameters matter.
//   - A public suffix list: www.co.uk becomes co.uk under crawl.
//   - Hosts in characters that the Unicode version at hand does not know: they are
//     refused, and may be taken by a later Go.
//
// A Profile may be used by any number of goroutines.
package urlkey

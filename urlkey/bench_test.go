package urlkey

import (
	"strings"
	"testing"
)

// BenchmarkAppend measures one URL of each kind, of some 70 bytes.
func BenchmarkAppend(b *testing.B) {
	for _, c := range []struct{ kind, url string }{
		{"canonical", "https://docs.example.com/3.11/library/concurrent.futures.html-and-mor"},
		{"query", "https://docs.example.com/3.11/library/futures.html?id=12345&lang=en&p=2"},
		{"fragment", "https://docs.example.com/3.11/library/concurrent.futures.html#executors"},
		{"upper-host", "HTTPS://Docs.Example.COM/3.11/library/concurrent.futures.html-and-mor"},
		{"no-path", "https://www.a-site-with-a-rather-long-name.docs.and-more.example.com"},
		{"crawl", "http://www.example.com/3.11/library/%7Efutures/?utm_source=x&id=1&a=2"},
		{"slow", "https://docs.example.com/3.11/library/../concurrent.futures/élève.html"},
	} {
		for _, profile := range []string{"none", "std", "crawl"} {
			b.Run(c.kind+"/"+profile, func(b *testing.B) {
				p := mustParse(b, profile)
				url, dst := []byte(c.url), make([]byte, 0, 256)
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if dst, err = p.Append(dst[:0], url); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLongest measures the slowest URLs that are taken, or refused after
// having been parsed.
func BenchmarkLongest(b *testing.B) {
	for _, c := range []struct{ kind, prefix, unit string }{
		{"userinfo", "http://u", "@"},
		{"opaque-host", "a://", "%41"},
		{"escaped-host", "a://", "\xff"},
		{"slashes", "a:/", "/"},
	} {
		b.Run(c.kind, func(b *testing.B) {
			std := mustParse(b, "std")
			size := maxBytes - len(c.prefix)
			if c.unit == "\xff" {
				size /= 3
			}
			url := c.prefix + strings.Repeat(c.unit, size/len(c.unit))
			for b.Loop() {
				std.AppendString(nil, url)
			}
		})
	}
}

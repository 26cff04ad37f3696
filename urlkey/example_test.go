package urlkey_test

import (
	"fmt"

	"dedupstore/urlkey"
)

func Example() {
	profile, err := urlkey.Parse("crawl")
	if err != nil {
		panic(err)
	}
	fmt.Println(profile)
	for _, url := range []string{
		"https://example.com/a?a=2&b=1",
		"HTTP://www.example.com:80/a/?b=1&a=2#top",
		"http://example.com/%61;jsessionid=1234?a=2&utm_source=mail&b=1",
		"example.com/a",
	} {
		key, err := profile.AppendString(nil, url)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s\n", key)
	}
	// Output:
	// crawl/1
	// https://example.com/a?a=2&b=1
	// https://example.com/a?a=2&b=1
	// https://example.com/a?a=2&b=1
	// urlkey: no URL: it has no scheme
}

func ExampleProfile_Explain() {
	profile, err := urlkey.Parse("crawl,-www")
	if err != nil {
		panic(err)
	}
	canonical, changes, err := profile.Explain("http://www.example.com/a/?gclid=1#top")
	if err != nil {
		panic(err)
	}
	for _, c := range changes {
		fmt.Println(c.Rule, c.To)
	}
	fmt.Println(canonical)
	// Output:
	// std http://www.example.com/a/?gclid=1
	// scheme https://www.example.com/a/?gclid=1
	// tracking https://www.example.com/a/
	// slash https://www.example.com/a
	// https://www.example.com/a
}

package main

import "testing"

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"store", "store", 0}, {"", "abc", 3}, {"abc", "", 3},
		{"sotre", "store", 1}, {"stor", "store", 1}, {"storre", "store", 1}, {"stoke", "store", 1},
		{"namespcae", "namespace", 1}, {"durabilty", "durability", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3},
	} {
		if got := distance(tc.a, tc.b); got != tc.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

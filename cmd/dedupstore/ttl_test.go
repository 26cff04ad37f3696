package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"dedupstore/store"
)

func TestParseTTL(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"3s": 3 * time.Second, "12h": 12 * time.Hour, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond,
		"30d": 30 * day, "2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour, "1.5d": 36 * time.Hour, "0.5w": 84 * time.Hour,
		"15250w": 15250 * week, "forever": store.Forever, "1ns": 1,
		// What is no TTL is 0 here.
		"": 0, "0": 0, "0s": 0, "0d": 0, "-3s": 0, "-1d": 0, "1d-2h": 0, "+1d": 0, "30": 0, "d": 0, "30 d": 0, "1.2.3d": 0, ".d": 0,
		"30D": 0, "1y": 0, "ever": 0, "forever1d": 0, "15251w": 0, "106752d": 0, "106751d24h": 0, "2562048h": 0, "1e3d": 0, "0x1d": 0,
	} {
		got, err := parseTTL(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("parseTTL(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestTTLText(t *testing.T) {
	for want, ttl := range map[string]time.Duration{
		"forever": store.Forever, "30d": 30 * day, "1d12h": 36 * time.Hour, "1h": time.Hour, "10m": 10 * time.Minute,
		"20h10m": 20*time.Hour + 10*time.Minute, "3s": 3 * time.Second, "1h0m3s": time.Hour + 3*time.Second, "1.5s": 1500 * time.Millisecond,
	} {
		if got := ttlText(ttl); got != want {
			t.Errorf("ttlText(%v) = %q, want %q", ttl, got, want)
		}
	}
	for range 10_000 {
		ttl := 1 + time.Duration(rand.Int64N(math.MaxInt64>>rand.IntN(62)))
		if got, err := parseTTL(ttlText(ttl)); got != ttl || err != nil {
			t.Errorf("parseTTL(%q) = %v, %v, want %v", ttlText(ttl), got, err, ttl)
		}
	}
}

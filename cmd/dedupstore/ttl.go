package main

// A TTL is written as Go writes a duration, in days and weeks too.

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"dedupstore/store"
)

const (
	day  = 24 * time.Hour
	week = 7 * day

	foreverText = "forever"
)

var errWantTTL = errors.New("want a time like 90s, 12h, 30d or 2w, at most 292 years, or forever")

// parseTTL reads a TTL like 12h, 30d or 1w2d.
func parseTTL(s string) (ttl time.Duration, err error) {
	if s == foreverText {
		return store.Forever, nil
	}
	for rest := s; rest != ""; {
		var d time.Duration
		if d, rest, err = cutTime(rest); err != nil || d > math.MaxInt64-ttl {
			return 0, errWantTTL
		}
		ttl += d
	}
	if ttl == 0 {
		return 0, errWantTTL
	}
	return ttl, nil
}

// cutTime reads a number and its unit from the start of s.
func cutTime(s string) (d time.Duration, rest string, err error) {
	const digits = "0123456789."
	number := s[:len(s)-len(strings.TrimLeft(s, digits))]
	rest = s[len(number):]
	unit := rest
	if end := strings.IndexAny(rest, digits); end >= 0 {
		unit = rest[:end]
	}
	rest = rest[len(unit):]
	switch unit {
	case "d":
		d, err = hoursTimes(number, day/time.Hour)
	case "w":
		d, err = hoursTimes(number, week/time.Hour)
	default:
		d, err = time.ParseDuration(number + unit)
	}
	if err == nil && d < 0 { // a sign is part of a unit here
		err = errWantTTL
	}
	return d, rest, err
}

// hoursTimes is a number of hours, times n.
func hoursTimes(number string, n time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(number + "h")
	if err == nil && d > math.MaxInt64/n {
		err = errWantTTL
	}
	return d * n, err
}

// ttlText is what parseTTL reads.
func ttlText(ttl time.Duration) string {
	if ttl == store.Forever {
		return foreverText
	}
	text := ""
	if ttl >= day {
		text = fmt.Sprintf("%dd", ttl/day)
		ttl %= day
		if ttl == 0 {
			return text
		}
	}
	rest := ttl.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(rest, zero) {
			rest = strings.TrimSuffix(rest, zero[1:])
		}
	}
	return text + rest
}

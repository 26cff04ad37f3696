package main

import (
	"errors"
	"math"
	"strings"
	"time"
)

// forever is a TTL without an end.
const forever = time.Duration(math.MaxInt64)

var errTTL = errors.New("want a time up to 292 years, like 30d, 2w, 1d12h or 90m, or forever")

// newTTL returns a flag for a TTL, which leaves *to as it is until it is set.
func newTTL(to *time.Duration) *value[time.Duration] { return newValue(to, "", "TTL", parseTTL) }

// parseTTL reads "forever", or what time.ParseDuration does, with d for 24 hours
// and w for 7 days besides, if that is above 0 and has no sign.
func parseTTL(s string) (time.Duration, error) {
	if s == "forever" {
		return forever, nil
	}
	var sum time.Duration
	for s != "" {
		var number, unit string
		number, s = cutPrefixOf(s, isNumeric)
		unit, s = cutPrefixOf(s, func(r rune) bool { return !isNumeric(r) })
		part, err := parseTTLPart(number, unit)
		if err != nil || part >= forever-sum {
			return 0, errTTL
		}
		sum += part
	}
	if sum == 0 {
		return 0, errTTL
	}
	return sum, nil
}

func isNumeric(r rune) bool { return r >= '0' && r <= '9' || r == '.' }

// cutPrefixOf cuts what s begins with, as far as it is of a kind.
func cutPrefixOf(s string, kind func(rune) bool) (prefix, rest string) {
	rest = strings.TrimLeftFunc(s, kind)
	return s[:len(s)-len(rest)], rest
}

// parseTTLPart reads a number and its unit.
func parseTTLPart(number, unit string) (time.Duration, error) {
	if number == "" {
		return 0, errTTL // a sign, or another that ParseDuration takes
	}
	times := time.Duration(1)
	switch unit {
	case "d":
		unit, times = "h", 24
	case "w":
		unit, times = "h", 7*24
	}
	part, err := time.ParseDuration(number + unit)
	if err != nil || part > forever/times {
		return 0, errTTL
	}
	return part * times, nil
}

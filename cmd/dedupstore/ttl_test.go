package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestParseTTL(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"30d": 30 * day, "2w": 14 * day, "1d12h": 36 * time.Hour, "1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"forever": forever, "3s": 3 * time.Second, "90m": 90 * time.Minute, "1h": time.Hour, "500ms": 500 * time.Millisecond,
		"1.5d": 36 * time.Hour, "0.5w": 84 * time.Hour, ".5d": 12 * time.Hour, "1.d": day, "0d1h": time.Hour,
		"12h1d": 36 * time.Hour, "1d1d": 2 * day, "1us": time.Microsecond, "1µs": time.Microsecond, "1ns": 1,
		"106751d": 106751 * day, "15250w": 15250 * 7 * day, "2562047h": 2562047 * time.Hour, "0030d": 30 * day,

		"106752d": 0, "15251w": 0, "2562048h": 0, "106751d24h": 0, "9223372036854775807ns": 0, "9999999999999999999999d": 0,
		"": 0, "0": 0, "0s": 0, "0d": 0, "30": 0, "d": 0, "-1d": 0, "+1d": 0, "1d-1h": 0, "1d 12h": 0, " 1d": 0, "1d ": 0,
		"1D": 0, "1W": 0, "30days": 0, "1y": 0, "1mo": 0, "1dh": 0, "1dd": 0, ".d": 0, "1..5d": 0, "1.2.3d": 0, "1e3d": 0,
		"1_000d": 0, "Forever": 0, "forever1d": 0, "1dforever": 0, "inf": 0, "NaN": 0, "١d": 0,
	} {
		got, err := parseTTL(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseTTL(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
}

// TestTTLFlag sets the flag, and does not.
func TestTTLFlag(t *testing.T) {
	for _, test := range []struct {
		args []string
		want time.Duration
		text string
		err  string
	}{
		{nil, 7, "", ""},
		{[]string{"--ttl", "2w"}, 14 * 24 * time.Hour, "2w", ""},
		{[]string{"--ttl=forever"}, forever, "forever", ""},
		{[]string{"--ttl", "soon"}, 7, "", `invalid argument "soon" for "--ttl" flag: ` + errTTL.Error()},
	} {
		ttl := time.Duration(7)
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		flags.Var(newTTL(&ttl), "ttl", "")
		text := ""
		if err := flags.Parse(test.args); err != nil {
			text = err.Error()
		}
		flag := flags.Lookup("ttl")
		if ttl != test.want || flag.Value.String() != test.text || flag.Value.Type() != "TTL" || text != test.err {
			t.Errorf("%v: got %v, %q, %q, error %q", test.args, ttl, flag.Value, flag.Value.Type(), text)
		}
	}
}

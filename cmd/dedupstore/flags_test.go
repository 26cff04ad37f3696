package main

import "testing"

func TestParseCount(t *testing.T) {
	for s, want := range map[string]int64{
		"1": 1, "42": 42, "1_000_000": 1e6, "1e6": 1e6, "2E9": 2e9, "2e+9": 2e9,
		"20M": 20e6, "20m": 20e6, "3k": 3000, "3K": 3000, "2.5G": 25e8,
		"2B": 2e9, "0.1t": 1e11, "180B": 180e9, "1.1M": 1_100_000, "0.5k": 500,
		"9007199254.740993M": 0, "4.35M": 4_350_000, "179999999999": 179_999_999_999,
		"": 0, "0": 0, "-1": 0, "1.5": 0, "M": 0, "180000000001": 0, "1e12": 0, "2T": 0, "inf": 0,
		"NaN": 0, "0x10": 0, "1e-3": 0, "1 M": 0, "1MM": 0, "1MiB": 0, "_": 0,
		"e": 0, "1e999": 0,
	} {
		got, err := parseCount(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseCount(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"256MiB": 256 << 20, "1GB": 1e9, "1MiB": 1 << 20, "2 GiB": 2 << 30,
		"1MB": 0, "": 0, "x": 0, "-1GiB": 0, "16EiB": 0, "0": 0,
	} {
		got, err := parseMemory(s)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("parseMemory(%q) = %d, %v, want %d", s, got, err, want)
		}
	}
}

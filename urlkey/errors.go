package urlkey

import (
	"errors"
	"fmt"

	parse "github.com/nlnwa/whatwg-url/errors"
)

// ErrInvalid is wrapped, with the reason, by what Append returns for bytes that
// are no absolute URL.
var ErrInvalid = errors.New("urlkey: no URL")

func invalid(reason string) error { return fmt.Errorf("%w: %s", ErrInvalid, reason) }

// reasons are short words for the parser's own, which repeat the URL.
var reasons = map[parse.ErrorType]string{
	parse.DomainToASCII:               "the host is no domain name",
	parse.DomainInvalidCodePoint:      "the host holds a forbidden character",
	parse.HostInvalidCodePoint:        "the host holds a forbidden character",
	parse.IPv4EmptyPart:               badIPv4,
	parse.IPv4TooManyParts:            badIPv4,
	parse.IPv4NonNumericPart:          badIPv4,
	parse.IPv4OutOfRangePart:          badIPv4,
	parse.IPv6Unclosed:                badIPv6,
	parse.IPv6InvalidCompression:      badIPv6,
	parse.IPv6TooManyPieces:           badIPv6,
	parse.IPv6MultipleCompression:     badIPv6,
	parse.IPv6InvalidCodePoint:        badIPv6,
	parse.IPv6TooFewPieces:            badIPv6,
	parse.IPv4InIPv6TooManyPieces:     badIPv6,
	parse.IPv4InIPv6InvalidCodePoint:  badIPv6,
	parse.IPv4InIPv6OutOfRangePart:    badIPv6,
	parse.IPv4InIPv6TooFewParts:       badIPv6,
	parse.MissingSchemeNonRelativeURL: "it has no scheme",
	parse.InvalidCredentials:          "no host follows the credentials",
	parse.HostMissing:                 "it has no host",
	parse.PortOutOfRange:              "the port is above 65535",
	parse.PortInvalid:                 "the port is no number",
}

const (
	badIPv4 = "the host is a bad IPv4 address"
	badIPv6 = "the host is a bad IPv6 address"
)

// parseError is ErrInvalid for an error of the parser.
func parseError(err error) error {
	if reason, ok := reasons[parse.Type(err)]; ok {
		return invalid(reason)
	}
	return invalid("it does not parse")
}

package urlkey

import "bytes"

// The parameters that rules drop. Names are compared without regard to case. A
// list belongs to a version of crawl: a name more is a new version.

// isTracking knows the parameters that say how somebody came to a page.
func isTracking(name, _ []byte) bool {
	return hasPrefixFold(name, "utm_") || inList(tracking, name)
}

// isSession knows the parameters that say who somebody is. The names are those
// that the Internet Archive drops, in Heritrix (StripSessionIDs) and in
// webarchive-commons (URLRegexTransformer). Like there, sid is one only with a
// value of 32 letters and digits, as it is also a story's number.
func isSession(name, value []byte) bool {
	const asp = "aspsessionid" // and 8 letters that the server has chosen
	switch {
	case len(name) == len("sid") && hasPrefixFold(name, "sid"):
		return len(value) == 32 && all(value, func(c byte) bool { return isLetter(c) || isDigit(c) })
	case len(name) == len(asp)+8 && hasPrefixFold(name, asp):
		return all(name[len(asp):], isLetter)
	}
	return inList(sessions, name)
}

// isBuster knows the parameters that only keep an answer out of a cache: "_" is
// jQuery's, and the others are in wide use. They are also the names of times and
// places in other sites' queries.
func isBuster(name, _ []byte) bool { return inList(busters, name) }

var (
	sessions = list("jsessionid phpsessid cfid cftoken")
	busters  = list("_ t ts rand cb")

	// tracking, but for utm_*, which Google Analytics documents.
	tracking = list(
		// Click identifiers of the advertisers, by their own documents: Google,
		// Meta, Microsoft, X, TikTok, LinkedIn, Yandex, Instagram, Impact.
		"gclid dclid gbraid wbraid gclsrc srsltid fbclid msclkid twclid ttclid "+
			"li_fat_id yclid ymclid ysclid igshid irclickid",
		// Newsletters, by theirs: Mailchimp, HubSpot, Marketo, MailerLite, Vero,
		// Omeda, Drip.
		"mc_cid mc_eid _hsenc _hsmi __hssc __hstc __hsfp hsctatracking mkt_tok "+
			"ml_subscriber ml_subscriber_hash vero_conv vero_id oly_anon_id oly_enc_id __s",
		// Others that Brave's query filter drops on any site, as it does most of
		// the above (brave-core, components/query_filter/utils.cc).
		"_branch_match_id _branch_referrer _gl _openstat at_recipient_id at_recipient_list "+
			"bsft_clkid bsft_uid fb_action_ids fb_comment_id guce_referrer guce_referrer_sig "+
			"mtm_cid pk_cid rb_clickid s_cid ss_email_id unicorn_click_id vgo_ee wickedid",
	)
)

// longestName is the longest name that a list holds.
const longestName = 24

func list(names ...string) map[string]struct{} {
	set := map[string]struct{}{}
	for _, group := range names {
		for name := range bytes.FieldsSeq([]byte(group)) {
			set[string(name)] = struct{}{}
		}
	}
	return set
}

func inList(set map[string]struct{}, name []byte) bool {
	if len(name) > longestName {
		return false
	}
	var buf [longestName]byte
	n := copy(buf[:], name)
	lower(buf[:n])
	_, in := set[string(buf[:n])]
	return in
}

func hasPrefixFold(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && bytes.EqualFold(b[:len(prefix)], []byte(prefix))
}

func all(b []byte, is func(byte) bool) bool {
	for _, c := range b {
		if !is(c) {
			return false
		}
	}
	return true
}

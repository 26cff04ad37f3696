package fuzz

import "fmt"

// The parts of FuzzLives' seeds. A TTL is one of lifeTTLs by its place.

func lived(level, memtable, span, excise byte, parts ...[]byte) []byte {
	return append([]byte{level, memtable, span, excise}, ops(0, 0, 0, parts...)[3:]...)
}

func lifeAdds(space, first, n, ttl byte) []byte { return []byte{lifeAdd, space, first, n - 1, 0, ttl} }
func lifeForgets(space, first, n byte) []byte   { return []byte{lifeForget, space, first, n - 1, 0} }
func lifeCommits(space, first, n, ttl byte) []byte {
	return []byte{lifeCommit, space, first, n - 1, 0, ttl}
}
func lifeCut(step, percent, next byte) []byte { return []byte{lifeCrashIn, step - 1, percent, next} }

// The places of some TTLs and times to pass.
const (
	ttlForever, ttlSecond, ttlHour, ttlMonth = 1, 2, 4, 6
	passMinutes, passHour, passMonth         = 2, 4, 6
)

func livesSeeds() map[string][]byte {
	one := func(b ...byte) []byte { return b }
	seeds := map[string][]byte{
		"ttl":       lived(0, 1, 1, 0, lifeAdds(0, 0, 20, ttlHour), lifeAdds(0, 10, 20, ttlMonth), one(lifeFlush), lifeAdds(0, 5, 9, ttlForever), one(lifePass, passHour, lifePass, passMinutes, lifeHas), lifeAdds(0, 0, 25, ttlSecond), one(lifePass, passMonth, lifeHas, lifeExpire, lifeVerify)),
		"tombstone": lived(0, 2, 1, 0, lifeAdds(0, 0, 20, ttlForever), one(lifeFlush), lifeForgets(0, 0, 9), lifeAdds(0, 0, 5, ttlSecond), lifeAdds(0, 5, 4, ttlForever), one(lifePass, passMinutes, lifeHas, lifeFlush, lifeHas), lifeForgets(0, 3, 9), one(lifeCrash, 2)),
		"cycle":     lived(2, 1, 0, 2, lifeAdds(1, 0, 3, 1), lifeForgets(1, 0, 3), lifeAdds(1, 0, 3, 4), lifeForgets(1, 0, 3), lifeAdds(1, 0, 3, 1), one(lifeFlush), lifeForgets(1, 0, 3), lifeAdds(1, 0, 3, 4), one(lifeCrash, 0, lifeHas)),
		"drop":      lived(0, 1, 0, 0, lifeAdds(1, 0, 25, 0), lifeAdds(2, 0, 25, 0), one(lifeFlush, lifeDrop, 1, lifeHas), lifeAdds(1, 0, 9, 0), one(lifeExpire, lifeCrash, 0, lifeVerify)),
		"drop-lone": lived(2, 3, 2, 2, lifeAdds(1, 0, 25, 0), one(lifeFlush, lifeDrop, 1, lifeCrash, 2, lifeFlush, lifeCrash, 0, lifeHas)),
		"drop-open": lived(1, 3, 2, 1, lifeAdds(1, 0, 25, 0), one(lifeDrop, 1), lifeAdds(1, 0, 25, ttlHour), one(lifeDrop, 1, lifeReopen), lifeAdds(1, 0, 25, 0), one(lifeExpire)),
		"reboot":    lived(0, 1, 1, 1, lifeAdds(0, 0, 25, ttlHour), one(lifeFlush, lifePass, passHour, lifeReboot, lifeHas), lifeAdds(0, 0, 25, ttlHour), one(lifePass, passMinutes, lifeCrash, 2, lifeExpire, lifeHas)),
		"wrong":     lived(0, 1, 1, 1, lifeAdds(0, 0, 25, ttlMonth), one(lifeWrong, 0, lifeHas, lifeWrong, 1, lifeHas), lifeForgets(0, 0, 9), one(lifePass, passMonth, lifeExpire)),
		"default":   lived(0, 2, 1, 0, one(lifeTTL, 0, ttlHour), lifeAdds(0, 0, 9, 0), lifeAdds(1, 0, 9, 0), one(lifeTTL, 0, ttlMonth), lifeAdds(0, 9, 9, 0), one(lifeReopen, lifePass, passHour, lifePass, passMinutes, lifeHas)),
		"commit":    lived(0, 1, 1, 0, lifeCommits(0, 0, 6, ttlHour), lifeAdds(0, 0, 9, ttlMonth), one(lifeFlush, lifePass, passHour, lifePass, passMinutes), lifeCommits(0, 0, 6, 1), one(lifeHas, lifeFlush, lifeCrash, 1)),
	}
	next := map[string][]byte{
		"add": lifeAdds(0, 5, 25, ttlHour), "forget": lifeForgets(0, 0, 12), "drop": {lifeDrop, 1},
		"flush": {lifeFlush}, "expire": {lifeExpire}, "reopen": {lifeReopen}, "commit": lifeCommits(1, 3, 6, ttlMonth),
	}
	for name, op := range next {
		for i, step := range []byte{1, 2, 3, 5, 8, 13, 21, 34} {
			seeds[fmt.Sprintf("cut-%s-%d", name, step)] = lived(byte(i%3), 1, byte(i%2), byte(i%3),
				lifeAdds(0, 0, 20, ttlForever), lifeAdds(1, 0, 9, ttlHour), one(lifeFlush), lifeAdds(0, 10, 25, ttlHour),
				lifeForgets(0, 3, 6), lifeAdds(1, 5, 9, 0), one(lifePass, passHour, lifePass, passMinutes),
				lifeCut(step, byte((i+len(name))%3), op[0]), op[1:], lifeAdds(1, 0, 20, ttlMonth), lifeForgets(0, 0, 12), one(lifeHas))
		}
	}
	return seeds
}

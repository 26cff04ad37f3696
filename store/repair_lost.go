package store

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Which words are lost with the parts of tables that cannot be read.

// lost tells what is lost. Where the counts are exact, a gap counts only in a segment
// that misses words: what a table cannot give any more may be in another one.
func (p *tablesPlan) lost(t *TablesRepair) {
	t.Claimed = -1
	if p.counted {
		t.Claimed = 0
	}
	ids := map[segmentID]bool{}
	for id := range p.registry.segments {
		ids[id] = true
	}
	for id, n := range p.inTables {
		ids[id] = true
		t.URLs += n
	}
	for _, g := range p.gaps {
		t.Bad = append(t.Bad, g.table)
		if g.from.segment == g.to.segment || g.from.segment == 0 && g.to.segment != lastPlace.segment {
			ids[g.to.segment] = true
		}
	}
	delete(ids, 0)
	maps.DeleteFunc(ids, func(id segmentID, _ bool) bool { return p.dead(id) })
	slices.Sort(t.Bad)
	t.Bad = slices.Compact(t.Bad)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		missing := int64(p.registry.segments[id].words) - p.inTables[id]
		if p.counted {
			t.Claimed += int64(p.registry.segments[id].words)
		}
		if p.exact && missing <= 0 {
			continue
		}
		ranges := p.rangesOf(id)
		if len(ranges) == 0 && missing > 0 {
			ranges = []LostRange{{Segment: uint32(id), to: ^word(0)}}
		}
		about := int64(0)
		for _, g := range ranges {
			about += g.URLs
		}
		if p.counted && missing > 0 || about < missing {
			spread(ranges, missing)
			about = missing
		}
		t.Lost += about
		t.Ranges = append(t.Ranges, ranges...)
	}
	for i := range t.Ranges {
		g := &t.Ranges[i]
		g.From, g.To = fmt.Sprintf("%016x", g.from), fmt.Sprintf("%016x", g.to)
		g.Share = (float64(g.to-g.from) + 1) / math.Exp2(64)
	}
}

// rangesOf are the gaps in one segment, those that touch as one.
func (p *tablesPlan) rangesOf(id segmentID) (ranges []LostRange) {
	for _, g := range p.gaps {
		if g.to.segment < id || g.from.segment > id {
			continue
		}
		one := LostRange{Segment: uint32(id), from: 0, to: ^word(0), URLs: g.words, Table: g.table}
		if g.from.segment == id {
			one.from = g.from.word
		}
		if g.to.segment == id {
			one.to = g.to.word
		}
		if one.from <= one.to {
			ranges = append(ranges, one)
		}
	}
	slices.SortFunc(ranges, func(a, b LostRange) int { return cmp.Compare(a.from, b.from) })
	merged := ranges[:0]
	for _, g := range ranges {
		if n := len(merged); n > 0 && g.from <= merged[n-1].to {
			last := &merged[n-1]
			last.to = max(last.to, g.to)
			last.URLs += g.URLs
			if last.Table != g.Table {
				last.Table = ""
			}
			continue
		}
		merged = append(merged, g)
	}
	return merged
}

// spread makes the words of ranges add up to the number that is missing, in
// the proportion in which they were guessed.
func spread(ranges []LostRange, missing int64) {
	about := int64(0)
	for _, g := range ranges {
		about += g.URLs
	}
	for i := range ranges {
		n := missing
		if i < len(ranges)-1 && about > 0 {
			n = int64(float64(missing) * float64(ranges[i].URLs) / float64(about))
		}
		about -= ranges[i].URLs
		ranges[i].URLs = n
		missing -= n
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"dedupstore/store"
)

// planner measures what a plan says.
type planner struct {
	dir   string
	n     int
	batch int
	in    store.PlanInput
	clock simulated

	peak     int64             // the most that all files have taken until Close
	memory   store.MemoryStats // at the end of that
	anon     int64             // the process's, then
	device   int64             // bytes written to devices until Close
	finished store.Stats       // after Close, another Open, and what is due then
	rest     int64             // all files, after Close
}

func planCommand(args []string) error {
	p := planner{batch: 1000}
	f := newFlags("plan")
	f.IntVar(&p.n, "n", 10_000_000, "URLs, live ones with -ttl")
	f.DurationVar(&p.in.TTL, "ttl", 0, "how long they live, in simulated time; three TTLs pass. 0: for ever")
	f.Int64Var(&p.in.MemoryBytes, "memory", 0, "Options.MemoryBytes; 0: the default")
	f.Int64Var(&p.in.ExpectedURLs, "urls", 0, "Options.ExpectedURLs; 0: the default, and the bitmap grows")
	f.StringVar(&p.dir, "store", "", "directory of the store; empty: a temporary one")
	if err := f.Parse(args); err != nil {
		return err
	}
	fmt.Println(machine())
	dir, clean, err := tempStore(p.dir)
	if err != nil {
		return err
	}
	defer clean()
	p.dir = dir
	if err := p.measure(); err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	return p.compare()
}

func (p *planner) open() (*store.Store, error) {
	return store.Open(p.dir, &store.Options{
		TTL: p.in.TTL, Clock: &p.clock, MemoryBytes: p.in.MemoryBytes, ExpectedURLs: p.in.ExpectedURLs,
	})
}

// measure fills a store, closes it, and opens it again.
func (p *planner) measure() error {
	s, err := p.open()
	if err != nil {
		return err
	}
	total, step := p.n, time.Duration(0)
	if p.in.TTL > 0 {
		total = 3 * p.n
		step = time.Duration(float64(p.in.TTL) / float64(p.n) * float64(p.batch))
	}
	wrote, began := deviceBytes(), time.Now()
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { p.watch(stop) })
	keys, answers := make([]string, p.batch), make([]store.Answer, p.batch)
	for i := 0; i < total && err == nil; i += p.batch {
		for j := range keys {
			keys[j] = url(i + j)
		}
		err = s.AddBatch(context.Background(), keys, answers)
		p.clock.passed.Add(int64(step))
	}
	p.memory, p.anon = s.Stats().Memory, rssAnon()
	p.in.NewPerDay = int64(float64(total) / time.Since(began).Seconds() * (24 * time.Hour).Seconds())
	fmt.Printf("%d URLs added in %v\n", total, time.Since(began).Round(time.Millisecond))
	err = errors.Join(err, s.Close())
	close(stop)
	watcher.Wait()
	if err != nil {
		return err
	}
	p.device = int64(float64(deviceBytes()-wrote) / float64(total) * float64(p.in.NewPerDay))
	if s, err = p.open(); err != nil {
		return err
	}
	// What is due is built, as in any store that is open for some seconds.
	_, err = s.Expire(context.Background(), store.ExpireOptions{})
	p.finished = s.Stats()
	if err = errors.Join(err, s.Close()); err != nil {
		return err
	}
	p.rest, err = diskBytes(p.dir)
	return err
}

// watch notes the most that all files have taken. Stats would not do: it does not
// know of a bitmap that is being built, nor of tables that are to be removed.
func (p *planner) watch(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		// A file may be gone between two looks.
		if bytes, err := diskBytes(p.dir); err == nil {
			p.peak = max(p.peak, bytes)
		}
	}
}

// compare prints what was planned beside what was measured.
func (p *planner) compare() error {
	p.in.URLs = p.finished.URLs
	plan, err := store.NewPlan(p.in)
	if err != nil {
		return err
	}
	m, d := p.memory, p.finished.Disk
	m.FileBacked = p.finished.Memory.FileBacked
	fmt.Printf("%d URLs live, %d spans, bitmap for %d; planned: %d spans, bitmap for %d, %d growths\n", p.finished.URLs,
		len(p.finished.Spans), p.finished.Bitmap.Capacity, plan.Spans, plan.BitmapCapacity, plan.Growths)
	fmt.Printf("%-28s %14s %14s %8s\n", "bytes", "planned", "measured", "ratio")
	for _, line := range []struct {
		name              string
		planned, measured int64
	}{
		{"memory: memtables", plan.Memory.Memtables, m.Memtables},
		{"memory: cache", plan.Memory.Cache, m.Cache},
		{"memory: block cache", plan.Memory.BlockCache, m.BlockCache},
		{"memory: log", plan.Memory.Log, m.Log},
		{"memory: anonymous", plan.Memory.Anonymous, m.Anonymous},
		{"memory: mapped", plan.Memory.FileBacked, m.FileBacked},
		{"memory", plan.Memory.Anonymous + plan.Memory.FileBacked, m.Anonymous + m.FileBacked},
		{"RssAnon of this process", plan.Memory.Anonymous, p.anon},
		{"rest: Pebble", plan.Disk.Pebble, d.Pebble},
		{"rest: bitmap", plan.Disk.Bitmap, d.Bitmap},
		{"rest: segment filters", plan.Disk.Filters, d.Filters},
		{"rest: all files", plan.Disk.Total, p.rest},
		{"peak: all files", plan.Peak.Total, p.peak},
		{"written to devices in a day", plan.DeviceBytesPerDay, p.device},
	} {
		fmt.Printf("%-28s %14d %14d %8.2f\n", line.name, line.planned, line.measured, float64(line.planned)/float64(line.measured))
	}
	return nil
}

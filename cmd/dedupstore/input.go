package main

// The inputs of a verb, one after the other, become batches here. One
// goroutine reads, unpacks and cuts while another asks the store. A batch that
// the store's side has not taken yet goes on growing, so that many small reads
// cost as few rounds as one large one, and a slow input's line waits for
// nobody.

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// stdinName stands for standard input among the file names.
const stdinName = "-"

// An input is what a verb reads.
type input struct {
	files []string // none: standard input
	stdin io.Reader
	rule  lineRule
	read  atomic.Int64 // bytes, of the files as they are
}

// newInput is the input of a verb that takes the lines of a text.
func newInput(files []string, stdin io.Reader) *input {
	if len(files) == 0 {
		files = []string{stdinName}
	}
	return &input{files: files, stdin: stdin, rule: plainLines}
}

// bytes is how many bytes there are to read; of a pipe nobody knows.
func (in *input) bytes() (total int64, known bool) {
	for _, name := range in.files {
		n, known := bytesOf(name, in.stdin)
		if !known {
			return 0, false
		}
		total += n
	}
	return total, true
}

func bytesOf(name string, stdin io.Reader) (n int64, known bool) {
	if name == stdinName {
		return bytesLeft(stdin)
	}
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
		return 0, false
	}
	return info.Size(), true
}

// bytesLeft is how much there is to read of a regular file.
func bytesLeft(r io.Reader) (n int64, known bool) {
	if !isRegular(r) {
		return 0, false
	}
	file := r.(*os.File)
	info, statErr := file.Stat()
	at, seekErr := file.Seek(0, io.SeekCurrent)
	if statErr != nil || seekErr != nil {
		return 0, false
	}
	return max(0, info.Size()-at), true
}

// isRegular reports whether f is a regular file.
func isRegular(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// A feeder is the reading side.
type feeder struct {
	*input
	ctx  context.Context
	keys *keyer
	buf  []byte
	full chan *batch // at most one; the feeder may take it back
	free chan *batch
}

// eachBatch calls do for every batch of the input in order, with keys of the
// program's profile, until do fails or ctx is done. It leaves no batch that do has
// begun, and says which was the last.
func (p *program) eachBatch(ctx context.Context, in *input, do func(*batch) error) error {
	if p.profile == nil || p.profile.String() == bytesProfile {
		in.rule.format.auto = false // a key is a line, whatever it looks like
	}
	readCtx, stop := context.WithCancel(ctx)
	defer stop()
	f := &feeder{
		input: in, ctx: readCtx, keys: newKeyer(in.rule.key, p.profile), buf: newLineBuffer(),
		full: make(chan *batch, 1), free: make(chan *batch, 3),
	}
	for range cap(f.free) { // one is filled, one waits, one is asked about
		f.free <- new(batch)
	}
	go f.feed()
	var last place
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case b, more := <-f.full:
			if !more {
				return nil
			}
			if err := do(b); err != nil {
				return err
			}
			if b.size() > 0 {
				last = b.last
			}
			b.reset()
			f.free <- b
		}
	}
	if last.number == 0 {
		return fmt.Errorf("%w before the first line was done", errInterrupted)
	}
	return fmt.Errorf("%w after %v", errInterrupted, last)
}

// feed sends all files and closes full, unless ctx is done before.
func (f *feeder) feed() {
	for _, name := range f.files {
		err := f.feedFile(name)
		if f.ctx.Err() != nil {
			return
		}
		if err != nil && err != io.EOF && err != errInvalidLine {
			f.extend(func(b *batch) { b.failed = append(b.failed, err) })
		}
		if err != io.EOF && f.rule.strict {
			break
		}
	}
	close(f.full)
}

func (f *feeder) feedFile(name string) error {
	r := f.stdin
	if name == stdinName {
		name = "stdin"
	} else {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		r = file
	}
	plain, done, err := unpack(&countingReader{r, &f.read})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer done()
	if plain, f.keys.extract, err = f.rule.format.lines(plain); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	lr := newLineReader(name, plain, f.rule, f.keys, f.buf)
	for {
		if err := lr.fill(); err == io.EOF || err == errInvalidLine {
			return err
		} else if err != nil {
			return fmt.Errorf("%s: after line %d: %w", name, lr.number, err)
		}
		for lr.text != "" {
			if !f.extend(lr.cut) {
				return nil
			}
		}
	}
}

// A countingReader counts what it reads.
type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// extend adds to the batch that waits, if it has room, or to the next one. It
// reports false, and nobody gets the batch, when ctx is done.
func (f *feeder) extend(add func(*batch)) bool {
	b := f.takeBack()
	if b == nil {
		select {
		case b = <-f.free:
		case <-f.ctx.Done():
			return false
		}
	}
	add(b)
	select {
	case f.full <- b:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// takeBack returns the batch that waits, or nil if none does or it is full.
func (f *feeder) takeBack() *batch {
	select {
	case b := <-f.full:
		if b.size() < batchLines {
			return b
		}
		f.full <- b // never blocks: nobody else sends
	default:
	}
	return nil
}

package main

// The inputs of a verb, one after the other, become batches here. One
// goroutine reads, unpacks and cuts while another asks the store. A batch that
// the store's side has not taken yet goes on growing, so that many small reads
// cost as few rounds as one large one, and a slow input's line waits for
// nobody.

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// stdinName stands for standard input among the file names.
const stdinName = "-"

// maxZstdWindow is the largest window that the zstd program takes without
// being asked for more.
const maxZstdWindow = 128 << 20 // 128 MiB

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
		if err != nil {
			f.extend(func(b *batch) { b.failed = append(b.failed, err) })
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
	lr := newLineReader(name, plain, f.rule.end, f.keys, f.buf)
	for {
		if err := lr.fill(); err == io.EOF {
			return nil
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

// unpack looks at the first bytes of r, and no further than it takes to
// decide, and returns what a gzip or zstd stream unpacks to, or r itself.
func unpack(r io.Reader) (plain io.Reader, done func(), err error) {
	head, err := readHead(r)
	if err != nil {
		return nil, nil, err
	}
	whole := io.MultiReader(bytes.NewReader(head), r)
	switch formatOf(head) {
	case formatGzip:
		return &gzipReader{src: bufio.NewReaderSize(whole, 64<<10)}, func() {}, nil
	case formatZstd:
		z, err := zstd.NewReader(whole, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return whole, func() {}, nil
}

// A gzipReader unpacks gzip streams that follow each other. Unlike
// gzip.Reader it hands out the end of one without waiting for the next.
type gzipReader struct {
	src    *bufio.Reader
	z      *gzip.Reader // nil before the first stream
	inside bool
}

func (g *gzipReader) Read(p []byte) (int, error) {
	if !g.inside {
		if err := g.next(); err != nil {
			return 0, err
		}
	}
	n, err := g.z.Read(p)
	if err == io.EOF {
		g.inside, err = false, nil
	}
	return n, err
}

// next begins the next stream, or returns io.EOF if there is none.
func (g *gzipReader) next() error {
	if _, err := g.src.Peek(1); err != nil {
		return err
	}
	if g.z == nil {
		g.z = new(gzip.Reader)
	}
	err := g.z.Reset(g.src)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // it ended inside the header
	}
	g.z.Multistream(false)
	g.inside = err == nil
	return err
}

// readHead reads until formatOf decides or r ends.
func readHead(r io.Reader) ([]byte, error) {
	var head []byte
	var buf [512]byte
	for {
		n, err := r.Read(buf[:])
		head = append(head, buf[:n]...)
		if err == io.EOF || err == nil && formatOf(head) != formatUnknown {
			return head, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

type format uint8

const (
	formatUnknown format = iota // more bytes are needed
	formatPlain
	formatGzip
	formatZstd
)

// formatOf tells the format of a stream that begins with head.
func formatOf(head []byte) format {
	for _, m := range []struct {
		magic []byte
		mask  byte // of the first byte
		f     format
	}{
		{[]byte{0x1f, 0x8b}, 0xff, formatGzip},
		{[]byte{0x28, 0xb5, 0x2f, 0xfd}, 0xff, formatZstd},
		{[]byte{0x50, 0x2a, 0x4d, 0x18}, 0xf0, formatZstd}, // a skippable frame
	} {
		n := min(len(head), len(m.magic))
		if n == 0 {
			return formatUnknown
		}
		if head[0]&m.mask != m.magic[0] || !bytes.Equal(head[1:n], m.magic[1:n]) {
			continue
		}
		if n < len(m.magic) {
			return formatUnknown
		}
		return m.f
	}
	return formatPlain
}

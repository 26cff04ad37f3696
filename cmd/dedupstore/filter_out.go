package main

// Where the lines of a batch go. All of them are written before the new ones
// are remembered, stdout first: if nobody reads it, the batch went nowhere.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// outputs are those of filter.
type outputs struct {
	verdicts, invert  bool
	seenTo, invalidTo string // "": nowhere
	end               byte   // of a line

	main, seen, invalid sink
	files               []*os.File // what close closes
}

// open opens the files.
func (o *outputs) open(stdout io.Writer) error {
	o.main = newSink(stdout)
	err := o.openFile(&o.seen, o.seenTo)
	if err == nil {
		err = o.openFile(&o.invalid, o.invalidTo)
	}
	if err != nil {
		return errors.Join(err, o.close())
	}
	return nil
}

// openFile opens a file to write to its end, and makes one if there is none.
func (o *outputs) openFile(s *sink, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	o.files = append(o.files, file)
	*s = newSink(file)
	if !s.sync {
		return nil
	}
	if err := o.endLine(file); err != nil {
		return err
	}
	return syncName(path)
}

// endLine ends the last line of a file, which a kill may have cut, so that the
// next one stands alone.
func (o *outputs) endLine(file *os.File) error {
	again, err := os.Open(file.Name()) // what is opened for appending alone cannot be read
	if err != nil {
		return err
	}
	defer again.Close()
	info, err := again.Stat()
	if err != nil {
		return err
	}
	ended, err := endsWith(again, info.Size(), o.end)
	if err == nil && !ended {
		_, err = file.Write([]byte{o.end})
	}
	return err
}

// endsWith reports whether a file of that size is empty or ends with a byte.
func endsWith(file io.ReaderAt, size int64, end byte) (bool, error) {
	if size == 0 {
		return true, nil
	}
	var last [1]byte
	_, err := file.ReadAt(last[:], size-1)
	return last[0] == end, err
}

func (o *outputs) close() (err error) {
	for _, file := range o.files {
		err = errors.Join(err, file.Close())
	}
	return err
}

// write returns when the lines of b are where a kill, or a power failure if it
// is a file, does not reach them. Those at the indices in fresh are new.
func (o *outputs) write(b *batch, fresh []int) error {
	switch {
	case o.verdicts:
		o.addVerdicts(b, fresh)
	case o.invert:
		o.addSeen(&o.main, b, fresh)
	default:
		for _, i := range fresh {
			o.main.add("", b.lines[i], o.end)
		}
	}
	if o.seenTo != "" {
		o.addSeen(&o.seen, b, fresh)
	}
	if o.invalidTo != "" {
		for i := range b.invalid {
			o.invalid.add("", b.invalid[i].line, o.end)
		}
	}
	for _, s := range []*sink{&o.main, &o.seen, &o.invalid} {
		if err := s.flush(); err == errReaderGone {
			return err
		} else if err != nil {
			return notRemembered(err)
		}
	}
	return nil
}

// addSeen adds the lines of b that are not fresh.
func (o *outputs) addSeen(to *sink, b *batch, fresh []int) {
	for i, line := range b.lines {
		if len(fresh) > 0 && fresh[0] == i {
			fresh = fresh[1:]
			continue
		}
		to.add("", line, o.end)
	}
}

// addVerdicts adds all lines of b, behind what they are.
func (o *outputs) addVerdicts(b *batch, fresh []int) {
	invalid := b.invalid
	for i := 0; ; i++ {
		for len(invalid) > 0 && invalid[0].before == i {
			o.main.add("invalid\t", invalid[0].line, o.end)
			invalid = invalid[1:]
		}
		if i == len(b.lines) {
			return
		}
		verdict := "seen\t"
		if len(fresh) > 0 && fresh[0] == i {
			verdict, fresh = "new\t", fresh[1:]
		}
		o.main.add(verdict, b.lines[i], o.end)
	}
}

// A sink takes the lines of a batch and writes them at once.
type sink struct {
	w    io.Writer
	sync bool // w is a file, whose bytes survive a power failure if synced
	out  []byte
}

func newSink(w io.Writer) sink { return sink{w: w, sync: isRegular(w)} }

func (s *sink) add(verdict, line string, end byte) {
	s.out = append(append(append(s.out, verdict...), line...), end)
}

func (s *sink) flush() error {
	if len(s.out) == 0 {
		return nil
	}
	err := writeOut(s.w, s.out)
	if err == nil && s.sync {
		err = s.w.(*os.File).Sync()
	}
	s.out = s.out[:0]
	return err
}

// notRemembered is err of a write.
func notRemembered(err error) error {
	return fmt.Errorf("%w; what was to be written is not remembered and will come again", err)
}

// writeOut writes all of out, or says that nobody reads it.
func writeOut(w io.Writer, out []byte) error {
	_, err := w.Write(out)
	if errors.Is(err, syscall.EPIPE) {
		return errReaderGone
	}
	return err
}

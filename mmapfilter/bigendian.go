//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package mmapfilter

// The words of a file are used where they lie, and they are little-endian. On
// a machine of the other order this line does not compile, which is its
// purpose.
var _ = mmapfilterNeedsALittleEndianMachine

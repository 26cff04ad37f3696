// Package planted takes one rule of the store's design out, so that a test
// can prove that it would notice. Without the build tag "planted" every fault
// is the constant false and the compiler removes it. With the tag, the
// environment variable DEDUPSTORE_PLANTED names the one fault that is in.
//
// "make planted" runs, for each fault, the test that must then fail.
package planted

// EnvVar is the environment variable that names the fault.
const EnvVar = "DEDUPSTORE_PLANTED"

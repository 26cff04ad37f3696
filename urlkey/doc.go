// Package urlkey brings URLs into canonical form.
package urlkey

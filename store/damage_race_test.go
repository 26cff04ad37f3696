//go:build race

package store

// damageThin is how many of the damages a run tries: one in so many.
const damageThin = 7

package store

import "errors"

// HashBytes is the length of a Hash: 120 bits, so that two counters never share a key.
const HashBytes = 15

// Hash is the hash of a counter's name. The keys and the place of the counter depend on it.
type Hash [HashBytes]byte

// ErrRefused is returned for an item that a server does not take.
var ErrRefused = errors.New("store: the server takes no items")

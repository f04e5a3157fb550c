package hierarchy

import "github.com/counterd/counterd/store"

// Store keeps the buckets of counters, each as one item: see package store.
type Store = store.Store

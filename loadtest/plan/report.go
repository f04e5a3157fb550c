package plan

// Report is what the traffic needs. All figures but those of one feature and of one server
// are of all servers together, with all copies.
type Report struct {
	Replicas int     `json:"replicas"`
	Events   []Event `json:"events"`
	Total    Figures `json:"total"`
	Servers  Servers `json:"servers"`
	Log      *Log    `json:"log,omitzero"` // what was measured, of a plan from a log
	// Assumptions are what the figures rest on, each a sentence.
	Assumptions []string `json:"assumptions"`
}

// Event is an event's part.
type Event struct {
	Name     string    `json:"name"`
	Counters []Counter `json:"counters"`
	Total    Figures   `json:"total"`
}

// Counter is the part of the counters of one kind, that the rules per it share.
type Counter struct {
	Per       string   `json:"per"`
	Limits    []string `json:"limits"`
	Retention string   `json:"retention"`
	// FeaturesADay are those with an event, on the average of the days.
	FeaturesADay float64 `json:"features_a_day"`
	Levels       []Level `json:"levels"`
	Total        Figures `json:"total"`
	// Shut is set where a limit of 0 denies every hit.
	Shut bool `json:"shut,omitempty"`
}

// Level is the buckets of a level.
type Level struct {
	Level string `json:"level"`
	Lives string `json:"lives"` // from its first second on
	// ADay is how many of them a feature's day has.
	ADay  float64 `json:"buckets_a_feature_a_day"`
	Items float64 `json:"items"` // at the peak
}

// Figures are what something takes.
type Figures struct {
	Counters  float64 `json:"counters"`   // that have an item, copies not counted
	Items     float64 `json:"items"`      // at the peak
	ItemBytes float64 `json:"item_bytes"` // their own
	SlabBytes float64 `json:"slab_bytes"` // of the pages that they lie in
	Average   Rates   `json:"average"`
	Peak      Rates   `json:"peak"`
}

func (f *Figures) add(g Figures) {
	f.Counters += g.Counters
	f.Items += g.Items
	f.ItemBytes += g.ItemBytes
	f.SlabBytes += g.SlabBytes
	f.Average.add(g.Average)
	f.Peak.add(g.Peak)
}

// Rates are of a second.
type Rates struct {
	Hits         float64 `json:"hits"`
	Trips        float64 `json:"trips"`
	Adds         float64 `json:"adds"`
	Reads        float64 `json:"reads"`
	WireBytes    float64 `json:"wire_bytes"`
	MemcachedCPU float64 `json:"memcached_cpu_seconds"`
	CounterdCPU  float64 `json:"counterd_cpu_seconds"`
}

func (r *Rates) add(s Rates) {
	r.Hits += s.Hits
	r.Trips += s.Trips
	r.Adds += s.Adds
	r.Reads += s.Reads
	r.WireBytes += s.WireBytes
	r.MemcachedCPU += s.MemcachedCPU
	r.CounterdCPU += s.CounterdCPU
}

// Servers are how many Memcached servers it takes, and what for.
type Servers struct {
	Needed int    `json:"needed"`
	Reason string `json:"reason"`

	ByMemory int `json:"by_memory"` // to hold all items
	ByCPU    int `json:"by_cpu"`    // to be no busier than they may be at the peak
	ByLoss   int `json:"by_loss"`   // to do both when one is gone and taken out of the list

	// Megabytes are what to start each with: -m.
	Megabytes int64 `json:"memcached_m"`
	// Of one server, when one of them is gone.
	Items       float64 `json:"items_each"`
	SlabBytes   float64 `json:"slab_bytes_each"`
	HashBytes   float64 `json:"hash_bytes_each"`
	MemoryBytes float64 `json:"memory_bytes_each"`
	PeakCPU     float64 `json:"peak_cpu_seconds_each"`
	PeakWire    float64 `json:"peak_wire_bytes_each"`

	// CounterdCores are what all processes of counterd take at the peak, at that share of
	// their time.
	CounterdCores float64 `json:"counterd_cores"`
}

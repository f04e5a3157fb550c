package plan

// Report is what the traffic needs. Figures are of all servers with all replicas, unless they
// are of one feature or of one server.
type Report struct {
	Replicas    int      `json:"replicas"`
	Events      []Event  `json:"events"`
	Total       Figures  `json:"total"`
	Servers     Servers  `json:"servers"`
	Log         *Log     `json:"log,omitzero"` // of a plan from a log
	Assumptions []string `json:"assumptions"`
}

// Event is an event's part.
type Event struct {
	Name     string    `json:"name"`
	Counters []Counter `json:"counters"`
	Total    Figures   `json:"total"`
}

// Counter is the part of the counters per the same kinds.
type Counter struct {
	Per          string   `json:"per"`
	Limits       []string `json:"limits"`
	Retention    string   `json:"retention"`
	FeaturesADay float64  `json:"features_a_day"`
	Levels       []Level  `json:"levels"`
	Total        Figures  `json:"total"`
}

// Level is the buckets of a level.
type Level struct {
	Level string  `json:"level"`
	Lives string  `json:"lives"`                   // from the bucket's first second on
	ADay  float64 `json:"buckets_a_feature_a_day"` // on average
	Items float64 `json:"items"`                   // at the peak
}

// Figures are memory and rates.
type Figures struct {
	Counters  float64 `json:"counters"`   // with an item, replicas not counted
	Items     float64 `json:"items"`      // at the peak
	ItemBytes float64 `json:"item_bytes"` // their own
	SlabBytes float64 `json:"slab_bytes"` // of their pages
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

// Servers is the number of Memcached servers, and what requires it.
type Servers struct {
	Needed    int   `json:"needed"` // for both after the loss of one
	ByMemory  int   `json:"by_memory"`
	ByCPU     int   `json:"by_cpu"`
	Megabytes int64 `json:"memcached_m"` // -m of each
	// Of one server, after the loss of another.
	Items       float64 `json:"items_each"`
	SlabBytes   float64 `json:"slab_bytes_each"`
	HashBytes   float64 `json:"hash_bytes_each"`
	MemoryBytes float64 `json:"memory_bytes_each"`
	PeakCPU     float64 `json:"peak_cpu_seconds_each"`
	PeakWire    float64 `json:"peak_wire_bytes_each"`
	// CounterdCores are those of all processes of counterd, busy at the peak as Memcached's.
	CounterdCores float64 `json:"counterd_cores"`
}

// Package progress is how a run reports how far it is.
package progress

// Progress shows how far a run is.
type Progress interface {
	// Start begins a stage of so many steps, and ends the one before it.
	Start(stage string, steps int)
	// Add reports steps that are done. Several goroutines may call it at once.
	Add(steps int)
}

type none struct{}

func (none) Start(string, int) {}
func (none) Add(int)           {}

// Or returns the progress, or one that shows nothing if it is nil.
func Or(p Progress) Progress {
	if p == nil {
		return none{}
	}
	return p
}

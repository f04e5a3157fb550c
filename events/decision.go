package events

import (
	"math"
	"time"
)

// Never is a time to wait that has no end: the cost of the hit is above the limit, or the feature is on a deny list.
const Never time.Duration = math.MaxInt64

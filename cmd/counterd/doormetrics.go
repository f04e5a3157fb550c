package main

import (
	"time"

	"github.com/counterd/counterd/internal/metrics"
)

// watchDoor has who was refused, and how the files that say who may call are, be among
// the metrics.
func watchDoor(m *metrics.Metrics, d *door) {
	access := metrics.Access{
		Refused: func(each func(class, reason string, n int64)) {
			for _, of := range d.refusals.All() {
				each(of.Class, of.Reason, of.N)
			}
		},
		TokenReloadFailures: d.tokenReloadFailures,
		TLSReloadFailures:   d.tlsReloadFailures,
	}
	if d.certificates != nil {
		access.Expiry = func() time.Time { expires, _ := d.certificateExpiry(); return expires }
	}
	m.WatchAccess(access)
}

package metrics

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// newBuildInfo returns what the binary was built from, as labels of a 1.
func newBuildInfo() prometheus.Collector {
	labels := prometheus.Labels{"version": "(devel)", "revision": "unknown", "go_version": runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok {
		labels["version"] = cmp.Or(build.Main.Version, "(devel)")
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				labels["revision"] = setting.Value
			}
		}
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "counterd_build_info", ConstLabels: labels,
		Help: "Always 1; what the binary was built from is in the labels.",
	})
	info.Set(1)
	return info
}

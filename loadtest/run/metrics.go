package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Series of a target, see docs/metrics.md.
const (
	tripsSeries  = "counterd_store_round_trips_total"
	readsSeries  = "counterd_store_reads_total"
	beganSeries  = "process_start_time_seconds" // since when they count
	cpuSeries    = "process_cpu_seconds_total"
	memorySeries = "process_resident_memory_bytes"
)

const maxMetrics = 64 << 20 // bytes

// Read reads /metrics of each server.
func (h *HTTP) Read(ctx context.Context) Reading {
	r := Reading{Here: h.here}
	admin := h.config.Admin
	if len(admin) == 0 {
		admin = h.config.URLs
	}
	for _, at := range distinct(admin) {
		if err := h.scrape(ctx, at, &r); err != nil {
			r.StoreNote = fmt.Sprintf("/metrics of %s: %v", at, err)
		}
	}
	return r
}

// scrape adds the figures of one server.
func (h *HTTP) scrape(ctx context.Context, at string, to *Reading) error {
	text, err := h.metrics(ctx, at)
	if err != nil {
		return err
	}
	defer text.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(text, maxMetrics))
	if err != nil {
		return errors.New("it is no text that Prometheus could read")
	}
	for _, metric := range families[beganSeries].GetMetric() {
		to.Began = append(to.Began, metric.GetGauge().GetValue())
	}
	to.CPU += time.Duration(sum(families[cpuSeries]) * float64(time.Second))
	to.Memory += int64(sum(families[memorySeries]))
	to.Trips += int64(sum(families[tripsSeries]))
	to.Reads += int64(sum(families[readsSeries]))
	if families[tripsSeries] == nil {
		return errors.New("it has no trips: its store has no servers")
	}
	return nil
}

// sum sums up a family, without trips that were not made because their server was known to be
// down.
func sum(family *dto.MetricFamily) (all float64) {
	for _, metric := range family.GetMetric() {
		down := slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "outcome" && l.GetValue() == "down" })
		if !down {
			all += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return all
}

func (h *HTTP) metrics(ctx context.Context, at string) (io.ReadCloser, error) {
	to, err := url.JoinPath(at, "metrics")
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, err
	}
	if h.config.Token != nil {
		token, err := h.config.Token()
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := h.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	answer.Body.Close()
	advice := ""
	switch {
	case answer.StatusCode == http.StatusNotFound && len(h.config.Admin) == 0:
		advice = "; -admin names its address"
	case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
		advice = "; it needs a token for operate"
	}
	return nil, fmt.Errorf("it is answered with %s%s", answer.Status, advice)
}

package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/counterd/counterd/loadtest/process"
)

// The series of a target's stores, see docs/metrics.md.
const (
	tripsSeries = "counterd_store_round_trips_total"
	readsSeries = "counterd_store_reads_total"
	beganSeries = "process_start_time_seconds" // since when they count
)

const maxMetrics = 64 << 20 // bytes

// Read reads /metrics of each server, and the usage of its process.
func (h *HTTP) Read(ctx context.Context) Reading {
	var r Reading
	admin := h.config.Admin
	if len(admin) == 0 {
		admin = h.config.URLs
	}
	for _, at := range distinct(admin) {
		if err := h.scrape(ctx, at, &r); err != nil {
			r.StoreNote = fmt.Sprintf("/metrics of %s: %v", at, err)
			break
		}
	}
	r.Processes, r.ProcessesNote = h.processes()
	return r
}

// scrape adds the trips and reads of one server.
func (h *HTTP) scrape(ctx context.Context, at string, to *Reading) error {
	text, err := h.metrics(ctx, at)
	if err != nil {
		return err
	}
	defer text.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(text, maxMetrics))
	switch {
	case err != nil:
		return errors.New("it is no text that Prometheus could read")
	case families[tripsSeries] == nil:
		return errors.New("it has no trips: its store has no servers")
	}
	for _, metric := range families[tripsSeries].GetMetric() {
		if !isDown(metric) {
			to.Trips += int64(metric.GetCounter().GetValue())
		}
	}
	for _, metric := range families[readsSeries].GetMetric() {
		to.Reads += int64(metric.GetCounter().GetValue())
	}
	for _, metric := range families[beganSeries].GetMetric() {
		to.Began = append(to.Began, metric.GetGauge().GetValue())
	}
	return nil
}

// isDown reports whether the trips were not made: their server was known to be down.
func isDown(metric *dto.Metric) bool {
	for _, label := range metric.GetLabel() {
		if label.GetName() == "outcome" && label.GetValue() == "down" {
			return true
		}
	}
	return false
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

// processes returns the usage of the servers' processes, and why some are unknown.
func (h *HTTP) processes() ([]Taken, string) {
	pids, note := h.config.PIDs, ""
	if len(pids) == 0 && process.Known {
		for _, at := range distinct(h.config.URLs) {
			pid, err := listening(at)
			if err != nil {
				note = fmt.Sprintf("the process at %s: %v", at, err)
				continue
			}
			pids = append(pids, pid)
		}
	}
	return usageOfAll(distinct(pids), note)
}

// usageOfAll returns the usage of processes, and why some are unknown.
func usageOfAll(pids []int, note string) (list []Taken, _ string) {
	if !process.Known {
		return nil, "the usage of processes is known on Linux only"
	}
	for _, pid := range pids {
		t := Taken{PID: pid}
		var err error
		if t.CPU, err = process.CPU(pid); err == nil {
			t.Now, t.Most, err = process.Memory(pid)
		}
		if err != nil {
			note = err.Error()
			continue
		}
		list = append(list, t)
	}
	return list, note
}

// listening returns the process that listens at a URL.
func listening(at string) (int, error) {
	to, err := url.Parse(at)
	if err != nil {
		return 0, errors.New("it is no URL")
	}
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	return process.Listening(net.JoinHostPort(to.Hostname(), port))
}

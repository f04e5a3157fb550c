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

// The series that a target tells of its stores, see docs/metrics.md.
const (
	tripsSeries = "counterd_store_round_trips_total"
	readsSeries = "counterd_store_reads_total"
	beganSeries = "process_start_time_seconds" // from then on they count
)

// maxMetrics bounds the text of /metrics.
const maxMetrics = 64 << 20

// Read asks each server's /metrics, and looks at its process.
func (h *HTTP) Read(ctx context.Context) Reading {
	var r Reading
	admin := h.config.Admin
	if len(admin) == 0 {
		admin = h.config.URLs
	}
	for _, at := range distinct(admin) {
		if err := h.scrape(ctx, at, &r); err != nil {
			r.StoreNote = err.Error()
			break
		}
	}
	r.Processes, r.ProcessesNote = h.processes()
	return r
}

// scrape adds the trips and reads of one server since its beginning.
func (h *HTTP) scrape(ctx context.Context, at string, to *Reading) error {
	text, err := h.metrics(ctx, at)
	if err != nil {
		return fmt.Errorf("/metrics of %s: %w", at, err)
	}
	defer text.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(text, maxMetrics))
	if err != nil {
		return fmt.Errorf("/metrics of %s is not what Prometheus reads", at)
	}
	if families[tripsSeries] == nil {
		return fmt.Errorf("/metrics of %s tells of no trips: its store has no servers", at)
	}
	// A server that is known to be down was not asked.
	asked := func(labels map[string]string) bool { return labels["outcome"] != "down" }
	to.Trips += sumOf(families[tripsSeries], asked)
	to.Reads += sumOf(families[readsSeries], func(map[string]string) bool { return true })
	for _, metric := range families[beganSeries].GetMetric() {
		to.Began = append(to.Began, metric.GetGauge().GetValue())
	}
	return nil
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
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		advice := ""
		switch {
		case answer.StatusCode == http.StatusNotFound && len(h.config.Admin) == 0:
			advice = "; -admin says where it is"
		case answer.StatusCode == http.StatusUnauthorized, answer.StatusCode == http.StatusForbidden:
			advice = "; it wants a token for operate"
		}
		return nil, fmt.Errorf("it is answered with %s%s", answer.Status, advice)
	}
	return answer.Body, nil
}

func sumOf(family *dto.MetricFamily, wanted func(labels map[string]string) bool) (sum int64) {
	for _, metric := range family.GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if wanted(labels) {
			sum += int64(metric.GetCounter().GetValue())
		}
	}
	return sum
}

// processes returns what the servers' processes have taken, and why of some it is not
// known.
func (h *HTTP) processes() (list []Taken, note string) {
	if !process.Known {
		return nil, "what processes take is known on Linux only"
	}
	pids := h.config.PIDs
	if len(pids) == 0 {
		for _, at := range distinct(h.config.URLs) {
			pid, err := listening(at)
			if err != nil {
				note = fmt.Sprintf("the process at %s: %v", at, err)
				continue
			}
			pids = append(pids, pid)
		}
	}
	for _, pid := range distinct(pids) {
		taken, err := takenBy(pid)
		if err != nil {
			note = err.Error()
			continue
		}
		list = append(list, taken)
	}
	return list, note
}

func takenBy(pid int) (t Taken, err error) {
	t.PID = pid
	if t.CPU, err = process.CPU(pid); err == nil {
		t.Now, t.Most, err = process.Memory(pid)
	}
	return t, err
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

//go:build testall

package whatif_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/whatif"
)

// What the engine says of the suggested rules: the share is kept, no limit could be one
// less, and the limits that are left out would change nothing.
func TestTheEngineAgrees(t *testing.T) {
	text := realText(t)
	log := readLog(t, text, "ip=host")
	denied := func(rates []string) whatif.Score {
		rules, err := rulesfile.Parse([]byte("events: {test: {limits: [{per: ip, rate: [" + strings.Join(rates, ", ") + "]}]}}"))
		require.NoError(t, err)
		report, err := whatif.Run(t.Context(), whatif.Config{Event: rules.Events["test"], Log: log})
		require.NoError(t, err)
		return report.All
	}
	leftOut := 0
	for deny, may := range map[string]int{"0": 0, "0.1": 1, "1": 17, "10": 175} {
		report := agreeOn(t, text, []string{"ip"}, "ip=host", deny, false)
		require.LessOrEqual(t, report.WhatIf.All.EverDenied, may)
		rules, err := rulesfile.Parse([]byte(report.Rules))
		require.NoError(t, err)
		again, err := whatif.Run(t.Context(), whatif.Config{Event: rules.Events["test"], Log: log, Top: 3})
		require.NoError(t, err)
		require.Equal(t, report.WhatIf, again, "that is what the file does")

		units := []string{"s", "m", "h", "d"}
		var kept, all []string
		for w, window := range report.Kinds[0].Windows {
			all = append(all, fmt.Sprintf("%d/%s", window.Chosen, units[w]))
			if window.Rate != "" {
				kept = append(kept, window.Rate)
			}
		}
		leftOut += len(all) - len(kept)
		require.Equal(t, denied(all), denied(kept), "what is left out denies nothing")
		for i, rate := range kept {
			n, unit, _ := strings.Cut(rate, "/")
			number, err := strconv.Atoi(n)
			require.NoError(t, err)
			less := slices.Clone(kept)
			less[i] = fmt.Sprintf("%d/%s", number-1, unit)
			require.Greater(t, denied(less).EverDenied, may, "%s could be %s", rate, less[i])
		}
	}
	require.Positive(t, leftOut)
}

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestImportPrintsRules(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	first := write("a.yaml", "domain: shop\ndescriptors:\n- {key: user, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 5}}\n")
	write("b.yaml", "domain: shop\ndescriptors:\n- {key: user, value: v*, rate_limit: {unit: hour, requests_per_unit: 9}}\n")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"import", "ratelimit", folder}, &stdout, &stderr), "%s", &stderr)
	assert.Equal(t, "counterd: warning: line 3, column 32: "+first+
		": descriptors[0].detailed_metric: detailed_metric has no effect: metrics are by limit, as those by value grow without bound\n"+
		"counterd: warning: the rules differ from the configuration in 1 decision or answer: "+
		"comments in them say which, and why; -rls-config serves the configuration as it is\n", stderr.String())
	assert.Contains(t, stdout.String(), `
events:
  shop:
    limits:
      - per: user
        rate: 5/h
        name: "user"
      # `+filepath.Join(folder, "b.yaml")+`:3: shop.user_v*, 9/h, has the limits per user instead: rules have no wildcards; `)

	rules := write("rules", stdout.String())
	stdout.Reset()
	stderr.Reset()
	require.Equal(t, exitOK, run(t.Context(), []string{"validate", rules}, &stdout, &stderr), "%s", &stderr)
	assert.Contains(t, stdout.String(), "shop   user")
	assert.Empty(t, stderr.String())

	broken := write("c.yaml", "domain: d\ndescriptors:\n- {value: x}\n- {kye: x}\n")
	stdout.Reset()
	require.Equal(t, exitFailed, run(t.Context(), []string{"import", "ratelimit", broken}, &stdout, &stderr))
	assert.Empty(t, stdout.String())
	assert.Regexp(t, `^counterd: line 3, column 3: .*c\.yaml: descriptors\[0\]: key is missing.*\nline 4, column 4: .*did you mean "key"`, stderr.String())
	require.Equal(t, exitFailed, run(t.Context(), []string{"import", "ratelimit", filepath.Join(folder, "none")}, &stdout, &stderr))

	for _, args := range [][]string{{}, {"ratelimit"}, {first}, {"nginx", first}, {"ratelimit", first, first}, {"ratelimit", "-merge", first}, {"ratelimit", "--"}, {"-merge", "ratelimit", first}} {
		assert.Equal(t, exitUsage, run(t.Context(), append([]string{"import"}, args...), &stdout, &stderr), "%v", args)
	}
	assert.Equal(t, exitFailed, run(t.Context(), []string{"import", "ratelimit", "-"}, &stdout, &stderr), "no file has that name")
	for _, args := range [][]string{{"help", "import"}, {"import", "-h"}, {"import", "ratelimit", "-h"}, {"import", "ratelimit", "--help"}} {
		stdout.Reset()
		require.Equal(t, exitOK, run(t.Context(), args, &stdout, &stderr))
		assert.Contains(t, stdout.String(), "counterd import ratelimit PATH")
	}
}

// A configuration without limits is valid, and so are its rules, but few mean it.
func TestImportCountsLimits(t *testing.T) {
	const which = ": comments in them say which, and why; -rls-config serves the configuration as it is\n"
	wildcard := func(key string) string {
		return "- {key: " + key + ", value: v*, rate_limit: {unit: hour, requests_per_unit: 5}}\n"
	}
	const limit = "- {key: user, rate_limit: {unit: hour, requests_per_unit: 5}}\n"
	const unlimited = "- {key: shop, rate_limit: {unlimited: true}}\n"
	const none = "counterd: warning: the rules have no limits: they admit all hits\n"
	for descriptors, want := range map[string]string{
		limit:                                 "",
		"":                                    none,
		unlimited:                             "counterd: warning: the rules differ from the configuration in 1 decision or answer" + which + none,
		wildcard("ip"):                        "counterd: warning: the rules leave out 1 limit" + which + none,
		limit + wildcard("a") + wildcard("b"): "counterd: warning: the rules leave out 2 limits" + which,
		limit + wildcard("a") + wildcard("user") + wildcard("b") + unlimited: "counterd: warning: the rules leave out 2 limits, " +
			"and differ from the configuration in 2 decisions or answers" + which,
	} {
		file := filepath.Join(t.TempDir(), "a.yaml")
		if descriptors != "" {
			descriptors = "descriptors:\n" + descriptors
		}
		require.NoError(t, os.WriteFile(file, []byte("domain: shop\n"+descriptors), 0o600))
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitOK, run(t.Context(), []string{"import", "ratelimit", file}, &stdout, &stderr), "%s", &stderr)
		assert.Equal(t, want, stderr.String(), descriptors)
	}
}

package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// readCompose loads the compose file as docker compose does, against its schema.
func readCompose(t *testing.T) *types.Project {
	t.Helper()
	return parseCompose(t, string(read(t, "compose.yaml")))
}

func parseCompose(t *testing.T, text string) *types.Project {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(deploy, "compose.yaml"))
	require.NoError(t, err)
	loaded, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path, Content: []byte(text)}},
	}, func(o *loader.Options) { o.SetProjectName("counterd", true) })
	require.NoError(t, err)
	return loaded
}

func composeSettings(service types.ServiceConfig) settings {
	s := settings{}
	for name, value := range service.Environment {
		s[name] = *value
	}
	return s
}

// unseen returns the files that the service names and that are not mounted by their folder:
// a mount of a single file keeps showing its first version after the file is replaced.
func unseen(service types.ServiceConfig) (names []string) {
	for name, value := range composeSettings(service) {
		within := func(volume types.ServiceVolumeConfig) bool {
			return strings.HasPrefix(value, strings.TrimSuffix(volume.Target, "/")+"/")
		}
		whole := func(file types.FileReferenceConfig) bool {
			return value == file.Target || filepath.Dir(value) == "/run/secrets" && filepath.Base(value) == file.Source
		}
		alone := slices.ContainsFunc(service.Volumes, func(volume types.ServiceVolumeConfig) bool { return volume.Target == value })
		for _, secret := range service.Secrets {
			alone = alone || whole(types.FileReferenceConfig(secret))
		}
		for _, config := range service.Configs {
			alone = alone || whole(types.FileReferenceConfig(config))
		}
		if strings.HasPrefix(value, "/") && (alone || !slices.ContainsFunc(service.Volumes, within)) {
			names = append(names, name)
		}
	}
	return names
}

// Files that counterd follows, tokens, rules and certificates, are mounted by their folders.
func TestFilesOfTheComposeFileAreSeenToChange(t *testing.T) {
	text := string(read(t, "compose.yaml"))
	for _, name := range []string{"counterd-1", "counterd-2"} {
		assert.Empty(t, unseen(readCompose(t).Services[name]), name)
	}
	const volume = "    - type: bind\n      source: ./secrets\n      target: /run/secrets\n"
	const environment = "    COUNTERD_LOG: json\n"
	for _, test := range []struct{ old, changed, unseen string }{
		{volume, "    - type: bind\n      source: ./secrets/tokens\n      target: /run/secrets/tokens\n", "COUNTERD_TOKENS"},
		{"      source: ./rules\n      target: /etc/counterd\n", "      source: ./rules/rules.yaml\n      target: /etc/counterd/rules.yaml\n", "COUNTERD_RULES"},
		{environment, environment + "    COUNTERD_TLS_CERT: /tls/cert.pem\n", "COUNTERD_TLS_CERT"},
		{"\nservices:\n", "  secrets: [tokens]\nsecrets:\n  tokens: {file: ./secrets/tokens}\n\nservices:\n", "COUNTERD_TOKENS"},
	} {
		require.Contains(t, text, test.old)
		broken := parseCompose(t, strings.Replace(text, test.old, test.changed, 1))
		assert.Contains(t, unseen(broken.Services["counterd-1"]), test.unseen, test.changed)
	}
}

func TestTheComposeFile(t *testing.T) {
	loaded := readCompose(t)
	processes, servers, taken := []string{}, []string{}, []string{}
	for name, service := range loaded.Services {
		assert.True(t, service.ReadOnly, name)
		assert.Equal(t, []string{"ALL"}, service.CapDrop, name)
		assert.NotNil(t, service.HealthCheck, name)
		if strings.HasPrefix(name, "memcached") {
			servers = append(servers, name+":11211")
			assert.Regexp(t, `^memcached:\d+\.\d+\.\d+`, service.Image)
			assert.Contains(t, service.Networks, "cache")
			assert.Len(t, service.Networks, 1, "nobody else reaches it")
			assert.Empty(t, service.Ports)
			continue
		}
		processes = append(processes, name)
		for _, port := range service.Ports {
			assert.Equal(t, "127.0.0.1", port.HostIP)
			assert.Contains(t, []uint32{8080, 9090}, port.Target, "what the image listens on")
			assert.NotContains(t, taken, port.Published)
			taken = append(taken, port.Published)
		}
	}
	assert.Len(t, servers, 3)
	assert.ElementsMatch(t, []string{"counterd-1", "counterd-2"}, processes)
	assert.True(t, bool(loaded.Networks["cache"].Internal))

	known := readFlags(t)
	for _, name := range processes {
		service := loaded.Services[name]
		s := composeSettings(service)
		s.check(t, known)
		assert.Equal(t, slices.Sorted(slices.Values(servers)), strings.Split(s["COUNTERD_MEMCACHED"], ","))
		assert.Equal(t, "2", s["COUNTERD_REPLICAS"])
		assert.Equal(t, "http://counterd-1:8080,http://counterd-2:8080", s["COUNTERD_PEERS"])
		require.Len(t, service.Volumes, 2)
		for _, volume := range service.Volumes {
			assert.True(t, volume.ReadOnly, volume.Target)
		}
		_, err := os.Stat(filepath.Join(service.Volumes[0].Source, strings.TrimPrefix(s["COUNTERD_RULES"], service.Volumes[0].Target)))
		assert.NoError(t, err)
		assert.Greater(t, time.Duration(*service.StopGracePeriod), longestEnd(t))

		dockerfile := filepath.Join(service.Build.Context, service.Build.Dockerfile)
		_, err = os.Stat(dockerfile)
		assert.NoError(t, err)
		b := buildImage(t)
		assert.Equal(t, slices.Concat([]string{"CMD"}, b.entrypoint, []string{"probe"}), []string(service.HealthCheck.Test[:3]))
		assert.Equal(t, "http://127.0.0.1:"+settings(b.env).port("COUNTERD_ADMIN")+"/readyz", service.HealthCheck.Test[3])
		s.checkMemory(t, int64(service.MemLimit))
	}
}

// What each deployment tells counterd, it starts with.
func TestCounterdStartsWithWhatItIsTold(t *testing.T) {
	files := map[string]string{
		"tokens": file(t, "tokens", tokensForTests), "key-secret": file(t, "key-secret", strings.Repeat("k", 32)),
		"rules.yaml":     file(t, "rules.yaml", string(read(t, "rules/rules.yaml"))),
		"memcached-auth": file(t, "memcached-auth", "user:password\n"),
		"limits":         file(t, "shop.yaml", "domain: shop\n"),
	}
	files["cert.pem"], files["key.pem"], _ = selfSigned(t)
	files["tls.crt"], files["tls.key"], files["ca.crt"] = files["cert.pem"], files["key.pem"], files["cert.pem"]
	compose := composeSettings(readCompose(t).Services["counterd-1"])
	for name, value := range buildImage(t).env { // what the image says, where the file does not
		if _, said := compose[name]; !said {
			compose[name] = value
		}
	}
	all := map[string]settings{"compose": compose, "systemd": unitSettings(t)}
	for name, list := range deployments(t) {
		all[name] = settingsOf(t, list.pods(t)["counterd"].Spec.Containers[0])
	}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			delete(s, "COUNTERD_MEMCACHED_TLS") // these servers have none
			require.Equal(t, "2", s["COUNTERD_REPLICAS"])
			servers := memcachedtest.StartMany(t, len(strings.Split(s["COUNTERD_MEMCACHED"], ",")))
			command := exec.Command(counterd(t))
			command.Env = s.elsewhere(t, servers, files)
			p := start(t, command)
			require.NotEmpty(t, p.admin)
			p.end(t)
			assert.Contains(t, p.log.String(), "replicas=2")
			assert.NotContains(t, p.log.String(), "open to all callers", "access is set")
		})
	}
}

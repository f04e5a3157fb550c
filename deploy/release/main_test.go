package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const project = "../.."

// tool returns the path of a program; where it is missing the test fails.
func tool(t *testing.T, name, of string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err, "this test needs %s: install %s", name, of)
	return path
}

func output(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = folder
	said, err := command.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, args, said)
	return string(said)
}

// clone makes a repository of what is in the project's folder now, with the tag of a release.
func clone(t *testing.T, folder string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(project, func(name string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		relative, err := filepath.Rel(project, name)
		require.NoError(t, err)
		switch base := entry.Name(); {
		case base == ".git" || base == "node_modules" || relative == "bin" || relative == "dist":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(folder, relative), 0o777)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return os.WriteFile(filepath.Join(folder, relative), text, 0o666)
	}))
	git := tool(t, "git", "git")
	t.Setenv("GIT_AUTHOR_DATE", "2026-11-27T09:00:00Z")
	t.Setenv("GIT_COMMITTER_DATE", "2026-11-27T09:00:00Z")
	output(t, folder, git, "init", "--quiet")
	output(t, folder, git, "-c", "core.autocrlf=false", "-c", "core.fileMode=false", "add", ".")
	output(t, folder, git, "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false",
		"commit", "--quiet", "--message=release")
	output(t, folder, git, "tag", "v0.1.0")
}

// Two releases of one commit, made in other folders by users with other umasks, are equal. The second one compiles its
// first target anew; all of them would take minutes. What is in the first release is what a user needs.
func TestRelease(t *testing.T) {
	targets := []string{"linux/amd64", "windows/amd64"}
	if own := runtime.GOOS + "/" + runtime.GOARCH; own != targets[0] {
		targets = append(targets, own) // it is started below
	}
	folder := t.TempDir()
	first, second := filepath.Join(folder, "a"), filepath.Join(folder, "another folder", "b")
	umask := syscall.Umask(0o022)
	defer syscall.Umask(umask)
	clone(t, first)
	one, other, rest := filepath.Join(folder, "dist"), filepath.Join(folder, "other"), filepath.Join(folder, "rest")
	require.NoError(t, run(first, one, targets))
	syscall.Umask(0o077)
	t.Setenv("GOFLAGS", "-tags=netgo")
	t.Setenv("GOFIPS140", "latest")
	settings := filepath.Join(folder, "env")
	require.NoError(t, os.WriteFile(settings, []byte("GOFLAGS=-tags=netgo\n"), 0o600))
	t.Setenv("GOENV", settings)
	t.Setenv("GOAMD64", "v3")
	t.Setenv("SOURCE_DATE_EPOCH", "1000000000")
	t.Setenv("TZ", "Asia/Tokyo")
	clone(t, second)
	require.NoError(t, run(second, rest, targets[1:]))
	t.Setenv("GOCACHE", filepath.Join(folder, "cache"))
	require.NoError(t, run(second, other, targets[:1]))
	sums := sumsOf(t, one)
	assert.ElementsMatch(t, strings.Split(sums, "\n"), strings.Split(sumsOf(t, other)+sumsOf(t, rest), "\n"))
	assert.Contains(t, output(t, one, tool(t, "sha256sum", "coreutils"), "--check", "--strict", "SHA256SUMS"), ".deb: OK")
	for _, name := range []string{
		"counterd_0.1.0_amd64.deb", "counterd_0.1.0_linux_amd64.sbom.json", "counterd_0.1.0_linux_amd64.tar.gz",
		"counterd_0.1.0_windows_amd64.sbom.json", "counterd_0.1.0_windows_amd64.zip",
		"loadtest_0.1.0_linux_amd64.sbom.json", "loadtest_0.1.0_windows_amd64.sbom.json",
	} {
		assert.Contains(t, sums, "  "+name+"\n")
	}

	t.Run("archive", func(t *testing.T) { checkArchives(t, one) })
	t.Run("sbom", func(t *testing.T) {
		for _, program := range []string{"counterd", "loadtest"} {
			checkSBOM(t, filepath.Join(one, program+"_0.1.0_linux_amd64.sbom.json"))
			checkSBOM(t, filepath.Join(one, program+"_0.1.0_windows_amd64.sbom.json"))
		}
	})
	t.Run("debian", func(t *testing.T) { checkDebian(t, filepath.Join(one, "counterd_0.1.0_amd64.deb")) })

	assert.ErrorContains(t, run(first, one, targets[:1]), "is not empty")
	require.NoError(t, os.WriteFile(filepath.Join(first, "cmd/counterd/new.go"), []byte("package main\n"), 0o600))
	assert.ErrorContains(t, run(first, filepath.Join(folder, "third"), targets[:1]), "not committed")
}

// sumsOf returns SHA256SUMS.
func sumsOf(t *testing.T, dist string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	require.NoError(t, err)
	return string(text)
}

// unpack reads an archive: names and their modes.
func unpack(t *testing.T, archive, into string) map[string]fs.FileMode {
	t.Helper()
	text, err := os.ReadFile(archive)
	require.NoError(t, err)
	modes := map[string]fs.FileMode{}
	save := func(name string, mode fs.FileMode, date time.Time, from io.Reader) {
		assert.True(t, date.Equal(time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)), "%s: %s", name, date)
		modes[name] = mode
		content, err := io.ReadAll(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(into, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(into, name), content, mode))
	}
	if strings.HasSuffix(archive, ".zip") {
		reader, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		for _, f := range reader.File {
			from, err := f.Open()
			require.NoError(t, err)
			save(f.Name, f.Mode(), f.Modified, from)
			require.NoError(t, from.Close())
		}
		return modes
	}
	uncompressed, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	reader := tar.NewReader(uncompressed)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return modes
		}
		require.NoError(t, err)
		assert.Equal(t, "root 0", header.Uname+" "+strings.Repeat("0", header.Uid+1))
		save(header.Name, header.FileInfo().Mode(), header.ModTime, reader)
	}
}

func checkArchives(t *testing.T, dist string) {
	for archive, suffix := range map[string]string{"linux_amd64.tar.gz": "", "windows_amd64.zip": ".exe"} {
		folder := "counterd_0.1.0_" + archive[:strings.Index(archive, ".")] + "/"
		assert.Equal(t, map[string]fs.FileMode{
			folder + "counterd" + suffix: 0o755, folder + "loadtest" + suffix: 0o755, folder + "LICENSE": 0o644, folder + "NOTICE": 0o644,
			folder + "THIRD_PARTY_LICENSES": 0o644, folder + "README.md": 0o644, folder + "CHANGELOG.md": 0o644,
			folder + "rules.yaml": 0o644,
		}, unpack(t, filepath.Join(dist, "counterd_0.1.0_"+archive), t.TempDir()), archive)
	}
	into := t.TempDir()
	name := "counterd_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH
	unpack(t, filepath.Join(dist, name+".tar.gz"), into)
	folder := filepath.Join(into, name)
	checkStatic(t, filepath.Join(folder, "counterd"))
	system := runtime.GOOS + "/" + runtime.GOARCH
	assert.Regexp(t, `^counterd v0\.1\.0 \(commit [0-9a-f]{40}, 2026-11-27T09:00:00Z\) go1\.\S+ `+system+"\n$",
		output(t, folder, filepath.Join(folder, "counterd"), "-version"))
	output(t, folder, filepath.Join(folder, "counterd"), "validate", "rules.yaml")
	output(t, folder, filepath.Join(folder, "loadtest"), "plan", "-rules", "rules.yaml", "-features-a-day", "1000", "-events-a-day", "10000")
	checkLinks(t, folder)
}

// checkLinks holds that the links of the pages in a folder lead to what the tag has.
func checkLinks(t *testing.T, folder string) {
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		links := regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1)
		assert.Greater(t, len(links), 10, name)
		for _, link := range links {
			assert.Contains(t, link[1], "://", name)
			if file, ours := strings.CutPrefix(link[1], "https://github.com/counterd/counterd/blob/v0.1.0/"); ours {
				_, err := os.Stat(filepath.Join(project, file))
				assert.NoError(t, err, name)
			}
		}
	}
}

// A binary for Linux needs no loader and no library, so that it runs in any distribution, and in an image without a shell.
func checkStatic(t *testing.T, name string) {
	binary, err := elf.Open(name)
	require.NoError(t, err)
	defer binary.Close()
	assert.Nil(t, binary.Section(".dynamic"))
	for _, segment := range binary.Progs {
		assert.NotContains(t, []elf.ProgType{elf.PT_INTERP, elf.PT_DYNAMIC}, segment.Type)
	}
}

// Each module of the SBOM has its license in THIRD_PARTY_LICENSES.
func checkSBOM(t *testing.T, name string) {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var bom cyclonedx.BOM
	require.NoError(t, cyclonedx.NewBOMDecoder(bytes.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom))
	assert.Equal(t, "pkg:golang/github.com/counterd/counterd@v0.1.0", bom.Metadata.Component.PackageURL)
	licenses, err := os.ReadFile(filepath.Join(project, "THIRD_PARTY_LICENSES"))
	require.NoError(t, err)
	require.Greater(t, len(*bom.Components), 10)
	for _, module := range *bom.Components {
		if module.Name != "std" {
			assert.Contains(t, string(licenses), "\n"+module.Name+" "+module.Version+"\n")
		}
	}
}

// The package is installed into a folder, by root with its scripts; systemd takes the unit.
func checkDebian(t *testing.T, deb string) {
	program := tool(t, "dpkg-deb", "dpkg")
	said := output(t, ".", program, "--info", deb)
	for _, line := range []string{
		"Package: counterd", "Version: 0.1.0", "Architecture: amd64", "Depends: systemd, procps",
	} {
		assert.Contains(t, said, " "+line+"\n")
	}
	contents := output(t, ".", program, "--contents", deb)
	for _, line := range []string{
		`-rwxr-xr-x root/root +\d+ 2026-11-27 .* \./usr/bin/counterd`,
		`-rw-r----- root/root +\d+ 2026-11-27 .* \./etc/counterd/counterd\.env`,
		`drwxr-x--- root/root +\d+ 2026-11-27 .* \./etc/counterd/`,
		`-rw-r--r-- root/root +\d+ 2026-11-27 .* \./usr/share/doc/counterd/copyright`,
	} {
		assert.Regexp(t, "(?m)^"+line+"$", contents)
	}
	assert.Equal(t, "/etc/counterd/counterd.env\n/etc/counterd/rules.yaml\n",
		output(t, ".", program, "--info", deb, "conffiles"))

	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755))
	syscall.Umask(0o022)
	if os.Getuid() != 0 { // only root can install
		output(t, ".", program, "--extract", deb, root)
	} else {
		for _, folder := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
			require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
		dpkg := func(args ...string) {
			t.Helper()
			output(t, ".", tool(t, "dpkg", "dpkg"), append([]string{
				"--root=" + root, "--force-depends", "--force-script-chrootless", "--force-confdef"}, args...)...)
		}
		dpkg("--install", deb)
		users, err := os.ReadFile(filepath.Join(root, "etc/group"))
		require.NoError(t, err)
		group := regexp.MustCompile(`(?m)^counterd:[^:]*:(\d+):`).FindStringSubmatch(string(users))
		require.NotNil(t, group, "%s", users)
		for name, mode := range map[string]string{"": "750", "/counterd.env": "640", "/rules.yaml": "640"} {
			name = filepath.Join(root, "etc/counterd"+name)
			assert.Equal(t, "0 "+group[1]+" "+mode+"\n", output(t, ".", "stat", "--format=%u %g %a", name), name)
		}
		env := filepath.Join(root, "etc/counterd/counterd.env")
		require.NoError(t, os.WriteFile(env, []byte("COUNTERD_MEMCACHED=mine:11211\n"), 0o640))
		dpkg("--install", deb)
		kept, err := os.ReadFile(env)
		require.NoError(t, err)
		assert.Equal(t, "COUNTERD_MEMCACHED=mine:11211\n", string(kept), "an upgrade leaves it")
		defer func() {
			dpkg("--remove", "counterd")
			assert.NoFileExists(t, filepath.Join(root, "usr/bin/counterd"))
			assert.FileExists(t, env)
			tokens := filepath.Join(filepath.Dir(env), "tokens")
			require.NoError(t, os.WriteFile(tokens, nil, 0o600))
			dpkg("--purge", "counterd")
			assert.NoFileExists(t, env)
			assert.FileExists(t, tokens, "no script has made it")
		}()
	}
	checkLinks(t, filepath.Join(root, "usr/share/doc/counterd"))
	unit, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/counterd.service"))
	require.NoError(t, err)
	require.Contains(t, string(unit), "\nExecStart=/usr/bin/counterd\n")
	placed := filepath.Join(t.TempDir(), "counterd.service")
	text := strings.ReplaceAll(string(unit), "/usr/bin/counterd", filepath.Join(root, "usr/bin/counterd"))
	require.NoError(t, os.WriteFile(placed, []byte(text), 0o644))
	analyze := tool(t, "systemd-analyze", "systemd")
	assert.Empty(t, output(t, ".", analyze, "verify", "--man=no", "--recursive-errors=no", placed))
}

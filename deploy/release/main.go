// Command release builds what a release of counterd consists of: an archive of counterd and loadtest for each system,
// Debian packages of counterd, an SBOM for each binary, and SHA256SUMS. It takes a clean clone at the tag of the release,
// whose version, commit and date Go stamps into the binaries. Two builds of one commit are equal, bit for bit.
//
// It is not goreleaser, which takes five minutes of processor time to compile, more than all else here.
//
//	cd deploy/release && go run . -out ../../dist
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

const targets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

// documents are in each archive, beside the binaries.
var documents = []string{
	"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md", "deploy/rules/rules.yaml",
}

func main() {
	source := flag.String("source", "../..", "the clone")
	out := flag.String("out", "dist", "an empty `folder`, or one to be made")
	list := flag.String("targets", targets, "systems and architectures")
	flag.Parse()
	if err := run(*source, *out, strings.Split(*list, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is where a release is written, and what it is of.
type release struct {
	source, out string
	version     string // without the v
	date        time.Time
}

func run(source, out string, list []string) error {
	if entries, err := os.ReadDir(out); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it", out)
	}
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	settings, err := download()
	if err != nil {
		return err
	}
	for _, target := range list {
		system, architecture, found := strings.Cut(target, "/")
		if !found {
			return fmt.Errorf("target %q: name a system and an architecture, such as linux/amd64", target)
		}
		binaries, err := build(settings, source, scratch, system, architecture)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		info, err := buildinfo.ReadFile(binaries[0])
		if err != nil {
			return err
		}
		r, err := readRelease(info)
		if err != nil {
			return err
		}
		r.source, r.out = source, out
		if err := r.add(binaries, system, architecture); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	return sum(out)
}

// build compiles counterd and loadtest for a target, with settings of download. The environment has no part in what comes
// out.
func build(settings []string, source, folder, system, architecture string) ([]string, error) {
	binaries := []string{"counterd", "loadtest"}
	for i := range binaries {
		binaries[i] = filepath.Join(folder, system+"-"+architecture, binaries[i])
		if system == "windows" {
			binaries[i] += ".exe"
		}
	}
	command := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-mod=readonly", "-ldflags=-s -w",
		"-o", filepath.Dir(binaries[0])+"/", "./cmd/counterd", "./loadtest")
	command.Dir = source
	command.Env = append(append(os.Environ(), settings...), "GOENV=off", "GOFIPS140=off", "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOTOOLCHAIN=local")
	if said, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(said))
	}
	return binaries, nil
}

// download returns the settings of go by which modules are found and kept, also what go env -w has set.
func download() (settings []string, err error) {
	names := []string{"GOPROXY", "GONOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOMODCACHE", "GOCACHE"}
	values, err := exec.Command("go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, err
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(values), "\n"), "\n") {
		settings = append(settings, names[i]+"="+value)
	}
	return settings, nil
}

// readRelease returns the version and the date that Go has stamped into a binary.
func readRelease(info *debug.BuildInfo) (release, error) {
	version, found := strings.CutPrefix(info.Main.Version, "v")
	if !found {
		return release{}, fmt.Errorf("the binary has the version %q: build in a clone", info.Main.Version)
	}
	of := map[string]string{}
	for _, setting := range info.Settings {
		of[setting.Key] = setting.Value
	}
	if of["vcs.modified"] != "false" {
		return release{}, errors.New("the clone has changes that are not committed: commit or remove them")
	}
	date, err := time.Parse(time.RFC3339, of["vcs.time"])
	return release{version: version, date: date}, err
}

// add writes the artifacts of the binaries of a target.
func (r release) add(binaries []string, system, architecture string) error {
	target := fmt.Sprintf("_%s_%s_%s", r.version, system, architecture)
	name, content := "counterd"+target, []file{}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		content = append(content, file{filepath.Base(binary), 0o755, program})
		of := strings.TrimSuffix(filepath.Base(binary), ".exe") + target
		if err := r.create(of+".sbom.json", func(to io.Writer) error { return writeSBOM(to, r, program, info) }); err != nil {
			return err
		}
	}
	for _, document := range documents {
		text, err := r.read(document)
		if err != nil {
			return err
		}
		content = append(content, file{path.Base(document), 0o644, text})
	}
	write, suffix := writeTar, ".tar.gz"
	if system == "windows" {
		write, suffix = writeZip, ".zip"
	}
	err := r.create(name+suffix, func(to io.Writer) error { return write(to, name, r.date, content) })
	if err != nil || system != "linux" {
		return err
	}
	return r.create(fmt.Sprintf("counterd_%s_%s.deb", r.version, architecture), func(to io.Writer) error {
		return r.writeDebian(to, binaries[0], architecture)
	})
}

var relativeLink = regexp.MustCompile(`\]\(([^#:)][^:)]*)\)`)

// read returns a file of the clone; the links of a page lead to the tree of the tag, of which packages have little.
func (r release) read(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(r.source, name))
	if path.Ext(name) == ".md" {
		text = relativeLink.ReplaceAll(text, []byte("](https://github.com/counterd/counterd/blob/v"+r.version+"/$1)"))
	}
	return text, err
}

func (r release) create(name string, write func(io.Writer) error) error {
	to, err := os.OpenFile(filepath.Join(r.out, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(to), to.Close())
}

// file is a file in an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// writeTar writes files of root, all of one time, in a folder.
func writeTar(to io.Writer, folder string, date time.Time, content []file) error {
	compressed := gzip.NewWriter(to)
	archive := tar.NewWriter(compressed)
	for _, f := range content {
		header := tar.Header{
			Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: date,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func writeZip(to io.Writer, folder string, date time.Time, content []file) error {
	archive := zip.NewWriter(to)
	for _, f := range content {
		header := zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: date.UTC()}
		header.SetMode(os.FileMode(f.mode))
		entry, err := archive.CreateHeader(&header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeSBOM lists the modules that a binary links, from the binary itself, as CycloneDX.
func writeSBOM(to io.Writer, r release, program []byte, info *debug.BuildInfo) error {
	component := func(kind cyclonedx.ComponentType, m *debug.Module) cyclonedx.Component {
		reference := "pkg:golang/" + m.Path + "@" + m.Version
		return cyclonedx.Component{Type: kind, BOMRef: reference, Name: m.Path, Version: m.Version, PackageURL: reference}
	}
	main := component(cyclonedx.ComponentTypeApplication, &info.Main)
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	digest := fmt.Sprintf("%x", sha256.Sum256(program))
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}}
	modules := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary,
		&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, component(cyclonedx.ComponentTypeLibrary, m))
	}
	references := []string{}
	for _, m := range modules {
		references = append(references, m.BOMRef)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.date.Format(time.RFC3339), Component: &main}
	bom.Components = &modules
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	return cyclonedx.NewBOMEncoder(to, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// writeDebian packs the binary with the unit of deploy/systemd, which is for /usr/local.
func (r release) writeDebian(to io.Writer, binary, architecture string) error {
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	unit, err := os.ReadFile(filepath.Join(r.source, "deploy/systemd/counterd.service"))
	if err != nil {
		return err
	}
	placed := filepath.Join(scratch, "counterd.service")
	unit = bytes.ReplaceAll(unit, []byte("/usr/local/bin/"), []byte("/usr/bin/"))
	if err := os.WriteFile(placed, unit, 0o600); err != nil {
		return err
	}
	content := files.Contents{
		// Only root reads /etc/counterd before systemd-tmpfiles gives it to the group.
		{Destination: "/etc/counterd", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o750}},
	}
	add := func(source, destination, kind string, mode os.FileMode) {
		if !filepath.IsAbs(source) {
			source = filepath.Join(r.source, source)
		}
		content = append(content, &files.Content{
			Source: source, Destination: destination, Type: kind, FileInfo: &files.ContentFileInfo{Mode: mode},
		})
	}
	add(binary, "/usr/bin/counterd", files.TypeFile, 0o755)
	add(placed, "/usr/lib/systemd/system/counterd.service", files.TypeFile, 0o644)
	add("deploy/systemd/counterd.sysusers", "/usr/lib/sysusers.d/counterd.conf", files.TypeFile, 0o644)
	add("deploy/systemd/counterd.tmpfiles", "/usr/lib/tmpfiles.d/counterd.conf", files.TypeFile, 0o644)
	add("deploy/systemd/counterd.env", "/etc/counterd/counterd.env", files.TypeConfigNoReplace, 0o640)
	add("deploy/rules/rules.yaml", "/etc/counterd/rules.yaml", files.TypeConfigNoReplace, 0o640)
	add("LICENSE", "/usr/share/doc/counterd/copyright", files.TypeFile, 0o644)
	for _, document := range []string{"NOTICE", "THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md"} {
		text, err := r.read(document)
		if err != nil {
			return err
		}
		placed := filepath.Join(scratch, document)
		if err := os.WriteFile(placed, text, 0o600); err != nil {
			return err
		}
		add(placed, "/usr/share/doc/counterd/"+document, files.TypeFile, 0o644)
	}
	for _, c := range content {
		c.FileInfo.Owner, c.FileInfo.Group, c.FileInfo.MTime = "root", "root", r.date
	}
	scripts := filepath.Join(r.source, "deploy/release/debian") + "/"
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "counterd", Arch: architecture, Platform: "linux", Version: r.version, MTime: r.date,
		Section: "net", Priority: "optional", License: "Apache-2.0",
		Maintainer:  "The counterd authors <counterd@users.noreply.github.com>",
		Homepage:    "https://github.com/counterd/counterd",
		Description: "distributed rate limiter and event counter\nExact sliding windows, on Memcached.",
		Overridables: nfpm.Overridables{
			Contents:   content,
			Depends:    []string{"systemd", "procps"}, // the unit names kill
			Recommends: []string{"ca-certificates"},
			Suggests:   []string{"memcached"},
			Scripts: nfpm.Scripts{
				PostInstall: scripts + "postinst",
				PreRemove:   scripts + "prerm",
				PostRemove:  scripts + "postrm",
			},
		},
	})
	if err := nfpm.PrepareForPackager(info, "deb"); err != nil {
		return err
	}
	return deb.Default.Package(info, to)
}

// sum writes the checksums of all artifacts.
func sum(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), entry.Name())
	}
	return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

package containers

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

func TestImage_SaysWhatItIs_AndHasNoRights(t *testing.T) {
	inspected, err := docker().ImageInspect(t.Context(), refunddImage(t))
	if err != nil {
		t.Fatal(err)
	}
	config := inspected.Config
	for label, want := range map[string]string{
		"org.opencontainers.image.title":    "refundd",
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.revision": revision,
	} {
		if got := config.Labels[label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if config.User != "65532:65532" {
		t.Errorf("it runs as %q", config.User)
	}
	if config.StopSignal != "SIGTERM" {
		t.Errorf("it is stopped by %q", config.StopSignal)
	}
	if want := []string{"CMD", "/usr/local/bin/refundd", "healthcheck"}; config.Healthcheck == nil ||
		!slices.Equal(config.Healthcheck.Test, want) {
		t.Errorf("its health is asked by %+v, want %q", config.Healthcheck, want)
	}
}

// Nothing stands beside the binary and the certificates: no shell, and no part of the sources.
func TestImage_HoldsOneBinary_ThatKnowsItsVersion(t *testing.T) {
	c := start(t, refunddImage(t), testcontainers.WithCmd("version"), untilEnd)
	if code, said := exitCodeOf(t, c), logs(c); code != 0 ||
		!strings.Contains(said, "refundd "+version+" (revision "+revision+") go") {
		t.Errorf("refundd version exits %d: %s", code, said)
	}
	got := filesIn(t, c)
	if want := []string{"etc/ssl/certs/ca-certificates.crt", "usr/local/bin/refundd"}; !slices.Equal(got, want) {
		t.Errorf("the image holds %q, want %q", got, want)
	}
}

// filesIn lists a container's files, without those that the engine puts into each.
func filesIn(t *testing.T, c testcontainers.Container) []string {
	t.Helper()
	exported, err := docker().ContainerExport(t.Context(), c.GetContainerID(), client.ContainerExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer exported.Close()
	var found []string
	for r := tar.NewReader(exported); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(found)
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		engines := slices.Contains([]string{".dockerenv", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab"},
			header.Name)
		if header.Typeflag != tar.TypeDir && !engines && !strings.HasPrefix(header.Name, "dev/") {
			found = append(found, header.Name)
		}
	}
}

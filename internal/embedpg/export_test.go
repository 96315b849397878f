package embedpg

import "context"

// MemoryBase lets the tests keep their folders where clusters are made fast.
var MemoryBase = memoryBase

// FindNothing looks for a Postgres where there is none but what PATH leads to.
func FindNothing(ctx context.Context) error {
	_, err := findInstall(ctx, 0, nil)
	return err
}

// FindAmong is the folder of the binaries that are taken for a cluster of a
// version, 0 for a new one.
func FindAmong(ctx context.Context, want int, packaged []string) (string, error) {
	i, err := findInstall(ctx, want, packaged)
	return i.bin, err
}

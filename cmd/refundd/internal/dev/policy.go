package dev

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// SamplePolicy is the policy that a new folder gets.
//
//go:embed policy.yaml
var SamplePolicy string

// Policy returns the policy file that dev decides by: a sample where there is none yet, and else what became of it.
func (f *Folder) Policy() (string, error) {
	path := filepath.Join(f.path, "policy.yaml")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("write policy.yaml: %w", err)
	}
	_, err = file.WriteString(SamplePolicy)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("write policy.yaml: %w", errors.Join(err, os.Remove(path)))
	}
	return path, nil
}

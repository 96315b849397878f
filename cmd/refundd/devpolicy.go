package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed devpolicy.yaml
var devPolicy []byte

// policy returns the policy file that dev decides by: a sample where there is none yet, and else what became of it.
func (f *devFolder) policy() (string, error) {
	path := filepath.Join(f.path, "policy.yaml")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return path, nil
	}
	if err != nil {
		return "", fmt.Errorf("write policy.yaml: %w", err)
	}
	_, err = file.Write(devPolicy)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("write policy.yaml: %w", errors.Join(err, os.Remove(path)))
	}
	return path, nil
}

package bulk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// perPage is how many marks are in memory at once. Lines are asked about in their order, and results were written
// nearly so.
const perPage = 8192

// marks are numbers by line number, kept in a sparse file that ends with the process: neither a million lines nor a row
// that names line two billion costs memory.
type marks struct {
	file  *os.File
	page  int
	dirty bool
	now   [perPage * 8]byte // of page
}

// newMarks returns marks that are all 0, in a file of a folder that is written to anyway.
func newMarks(dir string) (*marks, error) {
	file, err := os.CreateTemp(dir, ".refundd-bulk-*")
	if err != nil {
		return nil, err
	}
	return &marks{file: file}, os.Remove(file.Name())
}

func (m *marks) get(line int) (uint64, error) {
	err := m.turn(line / perPage)
	return binary.LittleEndian.Uint64(m.now[line%perPage*8:]), err
}

func (m *marks) set(line int, mark uint64) error {
	err := m.turn(line / perPage)
	binary.LittleEndian.PutUint64(m.now[line%perPage*8:], mark)
	m.dirty = true
	return err
}

// turn makes another page the one in memory.
func (m *marks) turn(page int) error {
	if page == m.page {
		return nil
	}
	if m.dirty {
		if _, err := m.file.WriteAt(m.now[:], int64(m.page)*int64(len(m.now))); err != nil {
			return fmt.Errorf("write marks: %w", err)
		}
	}
	clear(m.now[:])
	m.page, m.dirty = page, false
	if _, err := m.file.ReadAt(m.now[:], int64(page)*int64(len(m.now))); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read marks: %w", err)
	}
	return nil
}

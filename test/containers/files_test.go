package containers

import (
	"archive/tar"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// files writes a root folder as a tar stream; after its first error it writes no more.
type files struct {
	w   *tar.Writer
	err error
}

func archive(w io.Writer, fill func(*files) error) error {
	f := &files{w: tar.NewWriter(w)}
	return errors.Join(fill(f), f.w.Close())
}

// shell puts a shell and its tools there.
func (f *files) shell() {
	f.folder("tmp", 0o1777, 0)
	f.folder("etc", 0o755, 0)
	f.copy(busybox, "bin/busybox")
	for _, tool := range []string{"sh", "cat", "mkdir", "rm", "id", "ls", "env"} {
		f.put(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + tool, Linkname: "busybox"}, nil)
	}
}

func (f *files) folder(name string, mode int64, owner int) {
	f.put(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (f *files) text(name string, mode int64, text string) {
	f.put(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))}, strings.NewReader(text))
}

// copy takes a file, or a folder with all but the named parts below it. A link is followed where it is named and kept
// below.
func (f *files) copy(from, to string, except ...string) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		f.err = cmp.Or(f.err, err)
		return
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if slices.Contains(except, below) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return f.one(path, filepath.Join(to, below))
	})
	f.err = cmp.Or(f.err, err)
}

// one takes a single file, folder or link.
func (f *files) one(path, to string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	var target string
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(to, "/")
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if !info.Mode().IsRegular() {
		f.put(header, nil)
		return f.err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	f.put(header, file)
	return f.err
}

func (f *files) put(header *tar.Header, content io.Reader) {
	if f.err != nil {
		return
	}
	f.err = f.w.WriteHeader(header)
	if f.err == nil && content != nil {
		_, f.err = io.Copy(f.w, content)
	}
}

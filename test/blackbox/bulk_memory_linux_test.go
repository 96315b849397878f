package blackbox

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"refundd/test/harness"
)

// mostBulkMemory is what a run of refundd bulk may ever hold, however long its file is: half of it is the program.
const mostBulkMemory = 128 << 20

// Half of 150,000 lines are done, the others are none to send, and the results name a line of a far longer file.
// Nothing of them is held: each line is some 250 bytes, and were one byte of each kept, or a mark up to the highest
// number, the bound would not do.
func TestBulk_ManyLines_InBoundedMemory(t *testing.T) {
	t.Parallel()
	const lines, far = 150_000, 40_000_000
	file := filepath.Join(t.TempDir(), "event.csv")
	text, done := create(t, file), create(t, file+".results.csv")
	header := "line,operation_id,order_id,amount_cents,status,code,money_moved,refund_id,next_action,diagnostic_ref,detail,case_id\n"
	pad := fmt.Sprintf("%0200d", 0)
	fmt.Fprint(text, "operation_id,order_id,amount_cents,reason\n")
	fmt.Fprintf(done, "%s%d,k,A,1,processed,,yes,,none,,,\n", header, far)
	for i := range lines {
		amount := "1"
		if i%2 == 0 {
			amount = "1.00"
		}
		fmt.Fprintf(text, "operation-%d,A-%d,%s,%s\n", i, i, amount, pad)
		if i%2 == 1 {
			fmt.Fprintf(done, "%d,operation-%d,A-%d,1,processed,,yes,,none,,,\n", i+2, i, i)
		}
	}
	flush(t, text, done)

	p := harness.Spawn(t, "", []string{"REFUNDD_API_KEY=k", "REFUNDD_SERVER_URL=http://127.0.0.1:1"}, "bulk", file)
	most := peak(t, p)
	if code := p.End(t); code != 3 {
		t.Errorf("it exits %d\n%s", code, p.Logs.Text())
	}
	t.Logf("at most %d MiB", most>>20)
	if most > mostBulkMemory {
		t.Errorf("it held %d MiB, more than %d", most>>20, mostBulkMemory>>20)
	}
}

// peak is the most memory that a process was ever seen to have held.
func peak(t *testing.T, p *harness.Process) (most uint64) {
	t.Helper()
	proc, err := procfs.NewProc(p.Pid())
	if err != nil {
		t.Fatal(err)
	}
	for ; !p.Ended(); time.Sleep(5 * time.Millisecond) {
		if status, err := proc.NewStatus(); err == nil {
			most = max(most, status.VmHWM)
		}
	}
	if most == 0 {
		t.Fatal("its memory was not seen")
	}
	return most
}

type buffered struct {
	*bufio.Writer
	file *os.File
}

func create(t *testing.T, path string) buffered {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return buffered{bufio.NewWriter(file), file}
}

func flush(t *testing.T, files ...buffered) {
	t.Helper()
	for _, f := range files {
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.file.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

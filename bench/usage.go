package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// usage is what was used so far; a part that nobody can tell is -1.
type usage struct {
	service, provider, postgres, generator, machine time.Duration
	wal                                             int64 // bytes written to the log
	memory                                          int64 // of the service
}

// tick is the unit of /proc's times: USER_HZ, which is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

const untold = time.Duration(-1)

func (b *Bench) used(ctx context.Context, t Target) (usage, error) {
	u := usage{service: untold, provider: untold, postgres: untold}
	var faults []error
	read := func(into *time.Duration, from func() (time.Duration, error)) {
		used, err := from()
		*into = used
		faults = append(faults, err)
	}
	if t.Used != nil {
		service, err := t.Used(ctx)
		u.service, u.memory = service.CPU, service.Memory
		faults = append(faults, err)
	}
	if b.config.Provider != nil {
		provider, err := b.config.Provider(ctx)
		u.provider = provider.CPU
		faults = append(faults, err)
	}
	if b.postgres != nil {
		read(&u.postgres, b.postgres.cpu)
	}
	read(&u.generator, ownCPU)
	read(&u.machine, machineCPU)
	if err := b.config.Pool.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&u.wal); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return u, fmt.Errorf("read what was used: %w", err)
	}
	return u, nil
}

// Cost is what a load used while it was counted; a part that nobody can tell is -1.
type Cost struct {
	Service, Provider, Postgres, Generator time.Duration // CPU
	Others                                 time.Duration // CPU of everything else on this machine: it disturbs the measurement
	WALBytes                               int64
}

func (u usage) since(start usage) Cost {
	c := Cost{
		Service: spent(u.service, start.service), Provider: spent(u.provider, start.provider),
		Postgres: spent(u.postgres, start.postgres), Generator: spent(u.generator, start.generator),
		Others: spent(u.machine, start.machine), WALBytes: u.wal - start.wal,
	}
	if c.Others != untold {
		for _, ours := range []time.Duration{c.Service, c.Provider, c.Postgres, c.Generator} {
			c.Others -= max(ours, 0)
		}
		c.Others = max(c.Others, 0)
	}
	return c
}

func spent(now, start time.Duration) time.Duration {
	if now == untold || start == untold {
		return untold
	}
	return now - start
}

// Add sums two costs up.
func (c Cost) Add(o Cost) Cost {
	sum := func(a, b time.Duration) time.Duration {
		if a == untold || b == untold {
			return untold
		}
		return a + b
	}
	return Cost{
		sum(c.Service, o.Service), sum(c.Provider, o.Provider), sum(c.Postgres, o.Postgres), sum(c.Generator, o.Generator),
		sum(c.Others, o.Others), c.WALBytes + o.WALBytes,
	}
}

func ownCPU() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}

// machineCPU is the time in which some processor of this machine was not idle; untold where there is no /proc.
func machineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return untold, nil //nolint:nilerr // not Linux
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line)) // cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 8 {
		return untold, nil
	}
	var busy time.Duration
	for _, i := range []int{1, 2, 3, 6, 7} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return untold, fmt.Errorf("read /proc/stat: %w", err)
		}
		busy += time.Duration(ticks) * tick
	}
	return busy, nil
}

// process is a line of /proc/<pid>/stat.
type process struct {
	name         string
	parent       int
	used, reaped time.Duration // by itself; by children that ended and were waited for
	memory       int64
}

func readProcess(pid int) (process, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	// The name stands in parentheses and may itself hold any character.
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return process{}, errors.New("/proc/<pid>/stat is not as proc(5) has it")
	}
	fields := strings.Fields(string(text[end+1:])) // from the state, which is the third
	if len(fields) < 22 {
		return process{}, errors.New("/proc/<pid>/stat is not as proc(5) has it")
	}
	var numbers [6]int64 // ppid; utime, stime, cutime, cstime; rss
	for i, at := range []int{1, 11, 12, 13, 14, 21} {
		if numbers[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return process{}, err
		}
	}
	return process{
		name:   string(text[open+1 : end]),
		parent: int(numbers[0]),
		used:   time.Duration(numbers[1]+numbers[2]) * tick,
		reaped: time.Duration(numbers[3]+numbers[4]) * tick,
		memory: numbers[5] * int64(os.Getpagesize()),
	}, nil
}

// Used is what a process used so far, and the memory that it holds now.
type Used struct {
	CPU    time.Duration
	Memory int64 // bytes, resident
}

// OfProcess reads what a process of this machine used.
func OfProcess(pid int) func(context.Context) (Used, error) {
	return func(context.Context) (Used, error) {
		p, err := readProcess(pid)
		return Used{CPU: p.used, Memory: p.memory}, err
	}
}

// OfMetrics reads what the process behind an admin address tells of itself in its metrics.
func OfMetrics(adminURL string) func(context.Context) (Used, error) {
	return func(ctx context.Context) (Used, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(adminURL, "/")+"/metrics", nil)
		if err != nil {
			return Used{}, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return Used{}, err
		}
		defer response.Body.Close()
		var u Used
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, text, _ := strings.Cut(lines.Text(), " ")
			value, err := strconv.ParseFloat(text, 64)
			switch {
			case err != nil: // a comment
			case name == "process_cpu_seconds_total":
				u.CPU = time.Duration(value * float64(time.Second))
			case name == "process_resident_memory_bytes":
				u.Memory = int64(value)
			}
		}
		if u.CPU == 0 {
			return u, fmt.Errorf("%s/metrics does not tell process_cpu_seconds_total", adminURL)
		}
		return u, nil
	}
}

// postgres is the postmaster of the database, where it runs on this machine.
type postgres struct{ postmaster int }

// findPostgres answers nil where the server's processes are not to be seen from here.
func findPostgres(ctx context.Context, pool *pgxpool.Pool) (*postgres, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	var backend int
	var name string
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid(), current_setting('cluster_name')`).Scan(&backend, &name); err != nil {
		return nil, err
	}
	p, err := readProcess(backend)
	if err != nil || p.name != "postgres" {
		return nil, nil //nolint:nilerr // another machine, or another container
	}
	parent, err := readProcess(p.parent)
	if err != nil || parent.name != "postgres" {
		return nil, nil //nolint:nilerr // as above
	}
	return &postgres{p.parent}, nil
}

// cpu sums up the postmaster and all of its children, also those that ended.
func (p *postgres) cpu() (time.Duration, error) {
	main, err := readProcess(p.postmaster)
	if err != nil {
		return 0, fmt.Errorf("read the postmaster's times: %w", err)
	}
	sum := main.used + main.reaped
	folder, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if child, err := readProcess(pid); err == nil && child.parent == p.postmaster {
			sum += child.used
		}
	}
	return sum, nil
}

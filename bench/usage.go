package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
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
	const written = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`
	if err := b.config.Pool.QueryRow(ctx, written).Scan(&u.wal); err != nil {
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
	Others                                 time.Duration // CPU of everything else on this machine
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
		sum(c.Service, o.Service), sum(c.Provider, o.Provider), sum(c.Postgres, o.Postgres), sum(c.Generator,
			o.Generator),
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
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return untold, nil //nolint:nilerr // not Linux
	}
	stat, err := proc.Stat()
	if err != nil {
		return untold, fmt.Errorf("read /proc/stat: %w", err)
	}
	c := stat.CPUTotal // in seconds
	return time.Duration((c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal) * float64(time.Second)), nil
}

// process is what /proc tells of a process.
type process struct {
	name         string
	parent       int
	used, reaped time.Duration // by itself; by children that ended and were waited for
	memory       int64
}

func readProcess(pid int) (process, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return process{}, err
	}
	return read(proc)
}

func read(proc procfs.Proc) (process, error) {
	stat, err := proc.Stat()
	if err != nil {
		return process{}, err
	}
	return process{
		name: stat.Comm, parent: stat.PPID, memory: int64(stat.ResidentMemory()),
		used:   time.Duration(stat.UTime+stat.STime) * tick,
		reaped: time.Duration(stat.CUTime+stat.CSTime) * tick,
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
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			strings.TrimSuffix(adminURL, "/")+"/metrics", nil)
		if err != nil {
			return Used{}, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return Used{}, err
		}
		defer response.Body.Close()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(response.Body)
		if err != nil {
			return Used{}, fmt.Errorf("read %s/metrics: %w", adminURL, err)
		}
		u := Used{
			CPU:    time.Duration(value(families["process_cpu_seconds_total"]) * float64(time.Second)),
			Memory: int64(value(families["process_resident_memory_bytes"])),
		}
		if u.CPU == 0 {
			return u, fmt.Errorf("%s/metrics does not tell process_cpu_seconds_total", adminURL)
		}
		return u, nil
	}
}

// value is that of a metric without labels, 0 where it is absent.
func value(family *dto.MetricFamily) float64 {
	var sum float64
	for _, m := range family.GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
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
	err = conn.QueryRow(ctx, `SELECT pg_backend_pid(), current_setting('cluster_name')`).Scan(&backend, &name)
	if err != nil {
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
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, one := range all {
		if child, err := read(one); err == nil && child.parent == p.postmaster { // else it has just ended
			sum += child.used
		}
	}
	return sum, nil
}

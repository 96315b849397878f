package main

import (
	"context"
	"encoding/csv"
	"errors"
	"os"
	"time"

	"refundd/bulk"
	"refundd/client"
	"refundd/cmd/refundd/internal/fault"
)

type bulkCmd struct {
	File        string        `arg:"" placeholder:"FILE.csv" help:"Lines of operation_id, order_id, amount_cents and, where wanted, case_id, currency, reason; the header names them, in any order."`
	ServerURL   string        `name:"server-url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where refundd serves its API (default ${default})."`
	APIKey      string        `name:"api-key" placeholder:"KEY" help:"A key of scopes refunds:write and read (for --dry-run, read), better given as REFUNDD_API_KEY."`
	Results     string        `placeholder:"RESULTS.csv" help:"Where what became of each line is written, and read again by the next run (default FILE.csv.results.csv)."`
	DryRun      bool          `help:"Explain on stdout what would become of each line, and change nothing."`
	Concurrency int           `default:"8" help:"Lines that are asked for at once."`
	Patience    time.Duration `default:"2m" help:"For how long a line is tried while the service cannot answer, before the run stops."`
	Progress    time.Duration `default:"2s" help:"How often stderr is told how far it is."`
}

// Run refunds the lines of a file. The exit code is 1 where it is to be run again, and 3 where only people can help.
func (b bulkCmd) Run(ctx context.Context, c console) error {
	switch {
	case b.APIKey == "":
		return fault.Usage("refundd bulk needs a key: set REFUNDD_API_KEY")
	case b.Concurrency < 1 || b.Concurrency > 1024:
		return fault.Usage("--concurrency must be from 1 to 1024")
	case b.Patience < 0 || b.Progress <= 0:
		return fault.Usage("--patience must not be negative, and --progress must be positive")
	}
	service, err := client.New(client.Config{BaseURL: b.ServerURL, APIKey: b.APIKey, Layer: client.LayerBusiness})
	if err != nil {
		return fault.Usage("%s", err)
	}
	file, err := os.Open(b.File)
	if err != nil {
		return fault.New(fault.ErrUsage, "the file %s cannot be opened", b.File)
	}
	defer func() { _ = file.Close() }()
	lines, err := bulk.ReadLines(file)
	if err != nil {
		return fault.New(fault.ErrUsage, "%s", err)
	}
	config := bulk.Config{Client: service, Concurrency: b.Concurrency, Patience: b.Patience, DryRun: b.DryRun}
	if b.DryRun {
		return b.explain(ctx, c, config, lines)
	}
	if b.Results == "" {
		b.Results = b.File + ".results.csv"
	}
	results, err := bulk.OpenResults(b.Results)
	if err != nil {
		return fault.New(err, "%s", err)
	}
	config.Skip, config.Result = results.Done, results.Add
	return errors.Join(b.follow(ctx, c, config, lines), results.Close())
}

// explain prints what would become of each line.
func (b bulkCmd) explain(ctx context.Context, c console, config bulk.Config, lines *bulk.Lines) error {
	out := csv.NewWriter(c.stdout)
	config.Skip = func(bulk.Line) bool { return false }
	config.Result = func(r bulk.Result) error { return out.Write(r.Row()) }
	if err := out.Write(bulk.Header); err != nil {
		return err
	}
	err := b.follow(ctx, c, config, lines)
	out.Flush()
	return err
}

// follow runs, and tells how far it is.
func (b bulkCmd) follow(ctx context.Context, c console, config bulk.Config, lines *bulk.Lines) error {
	summary, done := bulk.NewSummary(), make(chan error, 1)
	go func() { done <- bulk.Run(ctx, config, lines, summary) }()
	ticks := time.NewTicker(b.Progress)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			c.log.Info("refunding", "lines", summary.String())
		case err := <-done:
			return b.end(c, summary, err)
		}
	}
}

// end says what it came to.
func (b bulkCmd) end(c console, s *bulk.Summary, err error) error {
	c.log.Info("refunded", "lines", s.String(), "results", b.Results)
	switch {
	case errors.Is(err, bulk.ErrFile), errors.Is(err, bulk.ErrStopped):
		return fault.New(err, "%s; %s: run the same command again once that is mended", err, s)
	case err != nil:
		return err
	case s.Unfinished() > 0:
		return fault.New(errors.New("unfinished"),
			"%s: run the same command again for those that are not done or pending", s)
	case s.NeedHuman() > 0:
		return fault.ErrFound
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"refundd/cmd/refundd/internal/fault"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitClean  = 0
	exitFailed = 1
	exitUsage  = 2
	exitFound  = 3 // it ran, and found something for a human
)

// commandLine is every command refundd has.
type commandLine struct {
	Dev          devCmd          `cmd:"" help:"Run everything on this machine, with sample data and a tour."`
	Serve        serveCmd        `cmd:"" help:"Serve the API."`
	Migrate      migrateCmd      `cmd:"" help:"Move the schema (as its owner, over a direct connection)."`
	Reconcile    reconcileCmd    `cmd:"" help:"Find out what became of refunds whose provider never told; exits 3 when one needs a human."`
	Audit        auditCmd        `cmd:"" help:"Prove the books; exits 3 when they lie."`
	Show         showCmd         `cmd:"" help:"Show all that is known of one operation."`
	AfterRestore afterRestoreCmd `cmd:"" help:"After a restore or a failover that lost commits, before serve starts: look up before sending what may be lost."`
	Tenants      tenantsCmd      `cmd:"" help:"Create and list tenants."`
	Keys         keysCmd         `cmd:"" help:"Create, list, revoke and rotate API keys."`
	Login        loginCmd        `cmd:"" help:"Make the database logins that refundd connects as."`
	Healthcheck  healthcheckCmd  `cmd:"" help:"Ask a running server whether it is alive."`
	Bench        benchCmd        `cmd:"" help:"Put a deployment under load, measure it, and prove that its answers were true."`
	Simulator    simulatorCmd    `cmd:"" help:"Simulate a payment provider, for tests and load."`
	Policy       policyCmd       `cmd:"" help:"Check a policy file."`
	MCP          mcpCmd          `cmd:"" name:"mcp" help:"Offer refunds to models as MCP tools, over stdio or HTTP."`
	Bulk         bulkCmd         `cmd:"" help:"Refund what a CSV file lists; exits 3 where lines need a human."`
	Version      versionCmd      `cmd:"" help:"Print the version of this program."`
}

// run carries out one command line and answers the exit code. getenv answers "" for what is not set.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	c, flush := newConsole(stdout, stderr)
	defer flush()
	err := dispatch(ctx, args, getenv, c)
	if err == nil {
		return exitClean
	}
	if errors.Is(err, fault.ErrFound) {
		return exitFound
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fault.New(err, "interrupted")
	}
	_, _ = fmt.Fprintf(c.stderr, "refundd: %s\n", fault.Sentence(err))
	if errors.Is(err, fault.ErrUsage) {
		return exitUsage
	}
	return exitFailed
}

func dispatch(ctx context.Context, args []string, getenv func(string) string, c console) error {
	helped := false
	parser, err := kong.New(&commandLine{},
		kong.Name("refundd"),
		kong.Description("Gives money back at most once per approved refund. Every --some-flag may be set as REFUNDD_SOME_FLAG; --database-url as DATABASE_URL. refundd help COMMAND tells more of one."),
		kong.Writers(c.stdout, c.stderr),
		kong.Exit(func(int) { helped = true }), // --help is the one that exits
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.Resolvers(environment(getenv)),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(c, lookup(getenv)),
	)
	if err != nil {
		return fmt.Errorf("read the command line's grammar: %w", err)
	}
	command, err := parser.Parse(asFlags(args))
	if helped {
		return nil
	}
	if err != nil {
		return fault.Usage("%s (see refundd --help)", fault.Foreign(err))
	}
	warnOfVariables(c, parser.Model.Node, os.Environ())
	return command.Run()
}

// asFlags takes what people try first: help, help COMMAND and --version.
func asFlags(args []string) []string {
	switch {
	case slices.Equal(args, []string{"help", "help"}):
		return []string{"--help"}
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return args
}

// lookup answers a variable of the environment, "" where it is not set.
type lookup func(string) string

// environment sets a flag that the command line leaves out from its variable.
func environment(getenv func(string) string) kong.ResolverFunc {
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if value := getenv(variable(flag.Name)); value != "" && flag.Name != "help" {
			return value, nil
		}
		if value := getenv(otlpVariable); value != "" && flag.Name == "otlp-endpoint" {
			return value, nil
		}
		return nil, nil
	}
}

func variable(flag string) string {
	if flag == "database-url" {
		return "DATABASE_URL"
	}
	return "REFUNDD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

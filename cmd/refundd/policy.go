package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"refundd/cmd/refundd/internal/fault"
	"refundd/escalations"
)

// policyFlags say what may be approved without a person.
type policyFlags struct {
	Policy string `placeholder:"FILE" help:"The policy that decides requests for refunds; without it every request goes to a person. SIGHUP reads it anew."`
}

// policy reads the file; nil where there is none.
func (f policyFlags) policy() (*escalations.Policy, error) {
	if f.Policy == "" {
		return nil, nil
	}
	return readPolicy(f.Policy)
}

func readPolicy(path string) (*escalations.Policy, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(err, "the policy file %s cannot be opened", path)
	}
	defer func() { _ = file.Close() }()
	p, err := escalations.ReadPolicy(file)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", path, err)
	}
	return p, nil
}

func (f policyFlags) newDesk(log *slog.Logger, pool *pgxpool.Pool) (*escalations.Desk, error) {
	p, err := f.policy()
	if err != nil {
		return nil, err
	}
	desk, err := escalations.New(escalations.Config{Pool: pool, Logger: log, Policy: p})
	if err != nil {
		return nil, fmt.Errorf("make desk: %w", err)
	}
	return desk, nil
}

// reload puts the file's policy in force. A file with a fault leaves the policy that is.
func (f policyFlags) reload(log *slog.Logger, desk *escalations.Desk) {
	if f.Policy == "" {
		log.Info("no policy to read anew: --policy names none")
		return
	}
	p, err := f.policy()
	if err != nil {
		log.Error("policy not read: the one before stays in force", "error", fault.Sentence(err))
		return
	}
	desk.SetPolicy(p)
}

type policyCmd struct {
	Check  policyCheckCmd  `cmd:"" help:"Read a policy file, and explain its gaps and overlaps; exits 1 where it is no policy."`
	Schema policySchemaCmd `cmd:"" help:"Print the JSON schema of a policy file."`
}

type policyCheckCmd struct {
	File string `arg:"" placeholder:"FILE" help:"The policy file."`
}

// Run prints what the policy decides and where it is silent.
func (p policyCheckCmd) Run(c console) error {
	policy, err := readPolicy(p.File)
	if err != nil {
		return err
	}
	c.printf("policy %s: %d rules, %d queues\n", policy.Version, len(policy.Rules), len(policy.Queues))
	for _, gap := range policy.Gaps() {
		c.printf("gap: %s\n", gap)
	}
	c.printf("gap: any other reason code or currency: queue %s\n", policy.DefaultQueue)
	return nil
}

type policySchemaCmd struct{}

// Run prints the schema.
func (policySchemaCmd) Run(c console) error {
	_, err := io.WriteString(c.stdout, escalations.Schema)
	return err
}

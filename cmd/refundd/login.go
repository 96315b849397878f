package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"refundd/cmd/refundd/internal/fault"
	"refundd/cmd/refundd/internal/postgres"
	"refundd/migrations"
)

// loginPassword is the variable of a login's password. It is no flag: whoever lists processes reads their arguments.
const loginPassword = "REFUNDD_LOGIN_PASSWORD" // #nosec G101 -- a name

type loginCmd struct {
	Create loginCreateCmd `cmd:"" help:"Make the database login of the service, or of its tools; again with the same result."`
}

type loginCreateCmd struct {
	postgres.Database
	Name          string `required:"" help:"The login, such as refundd."`
	Role          string `enum:"service,operator" default:"service" help:"What it may do: service (serve, reconcile) or operator (tenants, keys, show, audit); default ${default}."`
	PasswordStdin bool   `help:"Read its password from stdin, up to the first line end. Else it is that of REFUNDD_LOGIN_PASSWORD, or the one that it has, or a new one, which is printed."`
}

// Run makes the login. A password that it had to make up is printed alone on stdout.
func (l loginCreateCmd) Run(ctx context.Context, c console, env lookup) error {
	if l.Name == "" || len(l.Name) > 63 || strings.ContainsRune(l.Name, 0) {
		return fault.Usage("--name takes a name of 1 to 63 bytes")
	}
	login := migrations.Login{Name: l.Name, Role: migrations.Service, Password: env(loginPassword)}
	if l.Role == "operator" {
		login.Role = migrations.Operator
	}
	conn, err := l.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if l.PasswordStdin {
		if login.Password, err = readPassword(os.Stdin); err != nil {
			return err
		}
	}
	var has bool
	if err := conn.QueryRow(ctx,
		`SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)`, l.Name).Scan(&has); err != nil {
		return fmt.Errorf("look up login: %w", err)
	}
	made := login.Password == "" && !has
	if made {
		login.Password = rand.Text()
	}
	if err := migrations.MakeLogin(ctx, conn, login); err != nil {
		return postgres.LoginFault(err)
	}
	if made {
		c.printf("%s\n", login.Password)
	}
	_, _ = fmt.Fprintf(c.stderr, "login %s has the role %s and its time limits\n", l.Name, login.Role)
	return nil
}

// readPassword is the first line of r.
func readPassword(r io.Reader) (string, error) {
	line, err := bufio.NewReader(io.LimitReader(r, 4<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	password := strings.TrimRight(line, "\r\n")
	if password == "" {
		return "", fault.Usage("--password-stdin: there is no password on stdin")
	}
	return password, nil
}

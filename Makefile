# Two commands are all a newcomer needs: make run, make test.

.PHONY: run test console drill mutants release lint fmt
.DEFAULT_GOAL := run
# The race detector does not wait for a second at the end of each process.
export GORACE = atexit_sleep_ms=0
# Somebody's shell leads the tests to no other database.
unexport PGHOST PGPORT PGDATABASE PGUSER PGSERVICE PGSERVICEFILE PGOPTIONS PGSSLMODE PGSSLROOTCERT PGTARGETSESSIONATTRS PGTZ PGAPPNAME

# ARGS are passed on: make run ARGS='--addr 127.0.0.1:9090'
run: ## migrate, seed and serve on a private Postgres, with a tour of curl commands
	@./.ci/need postgres "$$DATABASE_URL"
	go run ./cmd/refundd dev $(ARGS)

test: ## the whole suite, under the race detector (make lint vets)
	@./.ci/need cc
	@./.ci/need postgres "$$TEST_DATABASE_URL"
	CGO_ENABLED=1 go test -race -vet=off -count=1 -p 2 -timeout 15m ./...

console: ## the console in a real browser: lost answers, two people at once, keys that end, accessibility, pictures
	./.ci/console

drill: ## what is slow and finds what is rare, or needs root: a full disk, a failover, stopped processes, kills at Stripe, tables replaced under load, a long loop of agents
	@./.ci/need postgres
	go test -tags drill -count=1 -p 1 -timeout 15m ./test/drill/...
	go test -tags drill -count=1 -timeout 10m -run 'Matrix|AtStripe|A85|Partitions' ./test/crash ./test/chaos ./migrations ./test/growth
	go test -count=1 -timeout 8m -run TestLoop ./test/agent -rounds 1600

ha: ## lose machines under load: the primary twice, an asynchronous one with its last commits, each replica in turn
	./.ci/ha

# ARGS are passed on: make mutants ARGS='-run gate'
mutants: ## change one condition of the code at a time, and expect the tests to notice
	@./.ci/need postgres "$$TEST_DATABASE_URL"
	nice go run ./test/mutants $(ARGS)

# VERSION names it: make release VERSION=v1.0.0
release: ## static binaries, a bill of materials for each and checksums, in dist/
	./.ci/release dist

lint: ## golangci-lint, built once into the user's cache
	./.ci/lint

fmt: ## gofmt everything
	gofmt -w .

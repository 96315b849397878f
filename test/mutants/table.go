package main

// mutant is one change, and the tests that must fail with it.
type mutant struct {
	name  string
	room  string // whose tests they are
	tests string // their pattern
	file  string
	old   string // found once in the file
	new   string
	few   bool // for the check of every change
	// survives says in a line why nothing can notice the mutant; empty where a test must.
	survives string
}

var table = concat(sending, leases, deciding, recording, claiming, people, books, keys, runs, mechanisms, atStripe,
	ofWebhooks)

func concat(groups ...[]mutant) (all []mutant) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

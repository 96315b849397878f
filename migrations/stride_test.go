//go:build !drill

package migrations_test

// stride is how far apart the messages are at which a migration loses its connection.
const stride = 3

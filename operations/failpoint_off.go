//go:build !failpoints || !linux

package operations

// failpoint marks a place between two steps of the protocol, for builds that tests make; see failpoint_on.go. In the shipped
// binary there is nothing left of it, not even its name.
func failpoint(string) {}

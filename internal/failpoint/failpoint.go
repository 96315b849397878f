// Package failpoint marks the places at which tests stop and kill this program, in the builds that they make with the
// tag failpoints; see failpoint_on.go. In the shipped binary nothing is left of it, not even the names of the places.
package failpoint

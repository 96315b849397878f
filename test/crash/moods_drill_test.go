//go:build drill

package crash

// fewMoods is whether the matrix at the simulator takes the moods that ask most, rather than all.
const fewMoods = false

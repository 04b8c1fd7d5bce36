//go:build !race

package simulation_test

// raceDetector says that the race detector is on, which takes time and memory of its own.
const raceDetector = false

package simulation_test

import (
	"bufio"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds  = flag.Uint64("simulation.seeds", 0, "how many stories TestSimulation plays; 0 is the usual number")
	first  = flag.Uint64("simulation.seed", 0, "the one story to play; 0 plays many")
	from   = flag.Uint64("simulation.from", newest, "the first seed of many; 0 takes a new one")
	repeat = flag.Uint64("simulation.repeat", 2, "how many stories of each kind are played twice, to see that they are the same")
)

// play plays the story of a seed.
func play(t *testing.T, seed uint64) (s *story, wrong []string) {
	t.Helper()
	s = newStory(seed)
	synctest.Test(t, func(*testing.T) { wrong = s.play() })
	return s, wrong
}

// check plays the story of a seed and prints it if a promise is broken.
func check(t *testing.T, seed uint64) {
	t.Helper()
	s, wrong := play(t, seed)
	if len(wrong) > 0 {
		t.Errorf("seed %d breaks %d promises:\n%s\n\nthe story:\n%s\n\nagain: make simulate SIM_SEED=%d",
			seed, len(wrong), strings.Join(wrong, "\n"), strings.Join(s.told, "\n"), seed)
	}
}

// The whole system keeps its promises in every story.
func TestSimulation(t *testing.T) {
	if *first > 0 {
		check(t, *first)
		return
	}
	n, began, next := uint64(12), time.Now(), *from
	if raceDetector { // make test plays all of them without it as well
		n = 2
	}
	if *seeds > 0 {
		n = *seeds
	}
	if next == 0 {
		next = rand.Uint64() >> 1
	}
	var played atomic.Uint64
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for i := played.Add(1); i <= n && !t.Failed(); i = played.Add(1) {
				check(t, next+i-1)
			}
		})
	}
	players.Wait()
	t.Logf("%d stories from seed %d in %v", min(played.Load(), n), next, time.Since(began).Round(time.Millisecond))
}

// Seeds that were red once stay green.
func TestSeedsThatFailedOnce(t *testing.T) {
	file, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), " ")
		if line == "" || line == "#" {
			continue
		}
		seed, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n++; n > 1 && raceDetector {
			break // make test plays all of them without it as well
		}
		check(t, seed)
	}
	if n == 0 {
		t.Error("the file names no seed")
	}
}

// One seed is one story, to the byte, also while others are played.
func TestASeedGivesTheSameStory(t *testing.T) {
	var alone, among []*story
	n := *repeat
	if raceDetector { // make test plays all of them without it as well
		n = min(n, 1)
	}
	for seed := uint64(1); seed <= n; seed++ {
		for _, seed := range []uint64{seed, newer + seed, newest + seed} {
			s, _ := play(t, seed)
			alone = append(alone, s)
			among = append(among, nil)
		}
	}
	var players sync.WaitGroup
	for i := range alone {
		players.Go(func() { among[i], _ = play(t, alone[i].seed) })
	}
	players.Wait()
	for k, one := range alone {
		other := among[k]
		for i := range max(len(one.told), len(other.told)) {
			if i >= len(one.told) || i >= len(other.told) || one.told[i] != other.told[i] {
				t.Fatalf("seed %d, from line %d on:\n%s\nand then\n%s", one.seed, i, excerpt(one.told, i), excerpt(other.told, i))
			}
		}
	}
}

func excerpt(told []string, from int) string {
	return strings.Join(told[min(max(from-3, 0), len(told)):min(from+4, len(told))], "\n")
}

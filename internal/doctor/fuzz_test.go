package doctor

import (
	"strconv"
	"testing"
	"time"
)

// A settings file with any value is refused, or the value is the one that was written.
func FuzzReadSettings(f *testing.F) {
	for _, seed := range []string{`5`, `"30s"`, `"4d"`, `1000000`, `99999999999999`, `-1`, `1e3`, `""`, `null`, `{}`, `[1]`, `1,"batchSize":2`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if n, err := strconv.Atoi(value); err == nil && strconv.Itoa(n) == value {
			if w, err := ReadSettings([]byte(`{"batchSize":` + value + `}`)); err != nil || w.Settings.BatchSize != n {
				t.Fatalf("%s is read as %d, %v", value, w.Settings.BatchSize, err)
			}
		} else {
			_, _ = ReadSettings([]byte(`{"batchSize":` + value + `}`)) // only that it comes back
		}
		days, err := strconv.Atoi(value)
		if err != nil {
			return
		}
		value += "d"
		if w, err := ReadSettings([]byte(`{"dlqRetention":"` + value + `"}`)); err == nil && w.Settings.DLQRetention/(24*time.Hour) != time.Duration(days) {
			t.Fatalf("%s is read as %v", value, w.Settings.DLQRetention)
		}
	})
}

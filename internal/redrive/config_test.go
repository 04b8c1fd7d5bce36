package redrive_test

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"acklast/internal/job"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

var urls = topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}

func parse(env map[string]string) (redrive.Config, error) {
	return redrive.ParseConfig(func(name string) string { return env[name] })
}

func TestConfigIsReadBackAsWritten(t *testing.T) {
	settings := topology.Scaled()
	settings.MaxRedrives = 7
	numbers := topology.ScaledRedrive()
	// Every number differs from its default, so that one that is not carried shows.
	v, d := reflect.ValueOf(&numbers).Elem(), reflect.ValueOf(topology.DefaultRedrive())
	for i := range v.NumField() {
		if v.Field(i).Int() == d.Field(i).Int() {
			v.Field(i).SetInt(v.Field(i).Int() + 1)
		}
	}
	env := redrive.Environment("stack", urls, settings, numbers)
	c, err := parse(env)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, c.Numbers, numbers, "the redrive's numbers")
	equal(t, c.Rules.MaxRedrives, 7, "the limit of redrives")
	equal(t, c.Rules.Retention, settings.LedgerRetention, "the ledger's retention")
	equal(t, c.Names, topology.NamesOf("stack"), "the names")
	equal(t, c.SourceURL, "s", "the source queue")
	equal(t, c.RecoveryURL, "r", "the recovery queue")
	equal(t, c.DLQURL, "d", "the DLQ")
	if want := []job.Class{job.Crashed, job.Ambiguous}; !reflect.DeepEqual(c.Guarded, want) {
		t.Errorf("guarded are %v, want %v", c.Guarded, want)
	}
	if c.Unqualified {
		t.Error("what is deployed lets itself be invoked without an alias")
	}
	if c, err = parse(redrive.LocalEnvironment("stack", urls, settings, numbers)); err != nil || !c.Unqualified {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	good := redrive.Environment("stack", urls, topology.Default(), topology.DefaultRedrive())
	for name, value := range map[string]string{
		redrive.EnvStack: "", redrive.EnvDLQURL: "", redrive.EnvSourceURL: "https://sqs.eu-central-1.amazonaws.com/1/jobs.fifo",
		redrive.EnvRecoveryURL: "r.fifo", redrive.EnvUnqualified: "yes", redrive.EnvLogLevel: "LOUD",
		redrive.EnvMaxRedrives: "0", "ACKLAST_REDRIVE_CANARY": "five", "ACKLAST_REDRIVE_LOCK_LEASE": "-1s",
	} {
		env := maps.Clone(good)
		env[name] = value
		if _, err := parse(env); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %q: %v", name, value, err)
		}
	}
	env := maps.Clone(good)
	env["ACKLAST_REDRIVE_CANARY"] = "0"
	if _, err := parse(env); err == nil || !strings.Contains(err.Error(), "canary is 0") {
		t.Errorf("without a canary: %v", err)
	}
}

package worker_test

import (
	"maps"
	"strings"
	"testing"

	"acklast/internal/topology"
	"acklast/internal/worker"
)

func TestEnvironmentSatisfiesParseConfig(t *testing.T) {
	for name, s := range map[string]topology.Settings{"default": topology.Default(), "scaled": topology.Scaled()} {
		env := worker.Environment("shop", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, s)
		c, err := worker.ParseConfig(func(name string) string { return env[name] })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		equal(t, c.Names.LedgerTable, "shop-ledger", "%s: the ledger's table", name)
		equal(t, c.DLQURL, "d", "%s: the DLQ's URL", name)
		equal(t, c.Rules.Retry.MaxAttempts, s.MaxAttempts, "%s: the most attempts", name)
		equal(t, c.Rules.Retention, s.LedgerRetention, "%s: the ledger's retention", name)
		equal(t, c.HopDelay, s.HopDelay, "%s: the hop delay", name)
		equal(t, c.StartMargin, s.StartMargin, "%s: the start margin", name)
		// A variable that is not set has the number of a deployed system.
		least := map[string]string{}
		for _, name := range []string{worker.EnvStack, worker.EnvSourceURL, worker.EnvRecoveryURL, worker.EnvDLQURL} {
			least[name] = env[name]
		}
		short, err := worker.ParseConfig(func(name string) string { return least[name] })
		if err != nil {
			t.Errorf("least environment: %v", err)
		}
		if name == "default" {
			equal(t, short, c, "the configuration by the least environment")
		}
	}
}

func TestParseConfigNamesTheVariable(t *testing.T) {
	good := worker.Environment("shop", topology.QueueURLs{Source: "s", Recovery: "r", DLQ: "d"}, topology.Default())
	maps.Copy(good, worker.ScheduleEnvironment("arn:aws:iam::1:role/r", "arn:aws:sqs:eu-central-1:1:d"))
	tests := map[string][]string{ // variable: values that must be refused
		worker.EnvStack:           {""},
		worker.EnvSourceURL:       {""},
		worker.EnvRecoveryURL:     {""},
		worker.EnvDLQURL:          {""},
		worker.EnvConcurrency:     {"0", "-1", "many"},
		worker.EnvProcesses:       {"0", "all"},
		worker.EnvStartMargin:     {"10", "-1s", "3s"},
		worker.EnvHandoverMargin:  {"soon", "0s"},
		worker.EnvMaxAttempts:     {"0", "1.5"},
		worker.EnvBackoffBase:     {"x", "0s"},
		worker.EnvBackoffCap:      {"1s"},
		worker.EnvAttemptTime:     {"0s", "6001ms"},
		worker.EnvHopDelay:        {"16m"},
		worker.EnvMaxContentions:  {"-3"},
		worker.EnvMaxAhead:        {"-1s"},
		worker.EnvScheduleFrom:    {"-1s", "14m"},
		worker.EnvScheduleAhead:   {"0s", "9601h"},
		worker.EnvScheduleEarly:   {"0s", "4h"},
		worker.EnvScheduleRole:    {""},
		worker.EnvDLQARN:          {""},
		worker.EnvRolloutWait:     {"0s"},
		worker.EnvContentionTime:  {"0s"},
		worker.EnvMaxRedrives:     {"x"},
		worker.EnvLedgerRetention: {"45d"},
		worker.EnvLeftBackoffBase: {"30"},
		worker.EnvLeftBackoffCap:  {"13h", "1s"},
		worker.EnvLeaseSkew:       {"-1s"},
		worker.EnvLogLevel:        {"LOUD"},
	}
	for variable, values := range tests {
		for _, value := range values {
			env := maps.Clone(good)
			env[variable] = value
			_, err := worker.ParseConfig(func(name string) string { return env[name] })
			if err == nil || !strings.Contains(err.Error(), variable) {
				t.Errorf("%s=%q: %v, want an error that names it", variable, value, err)
			}
		}
	}
	for name := range good {
		if _, ok := tests[name]; !ok {
			t.Errorf("%s has no test of a bad value", name)
		}
	}
	// The error names every mistake.
	_, err := worker.ParseConfig(func(string) string { return "" })
	for _, name := range []string{worker.EnvStack, worker.EnvSourceURL, worker.EnvRecoveryURL, worker.EnvDLQURL} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("an empty environment: %v does not name %s", err, name)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// localReport describes a running "acklast local".
type localReport struct {
	Endpoint  string `json:"endpoint"`
	Region    string `json:"region"`
	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`
	Stack     string `json:"stack"`
	// Source, Recovery and DLQ are queue URLs at the endpoint.
	Source   string `json:"sourceQueueUrl"`
	Recovery string `json:"recoveryQueueUrl"`
	DLQ      string `json:"dlqUrl"`
	// Provider is the address of the fake provider; GET /messages lists what it accepted.
	Provider string `json:"providerUrl"`
	// Kinds are the kinds of job that the worker knows.
	Kinds []localKind `json:"kinds"`
	// Paused are the lanes from which nothing is received.
	Paused []job.Queue `json:"paused"`
	// Processes are the process ids of the worker.
	Processes []int `json:"processes"`
}

// localKind is a kind of job that the worker knows.
type localKind struct {
	Name string `json:"name"`
	// Tables are its tables.
	Tables []string `json:"tables"`
	// Sample is the body of a job that runs at once, Key its key; absent if the kind has no sample.
	Sample string `json:"sample,omitempty"`
	Key    string `json:"key,omitempty"`
}

// at returns a queue's URL with the host of the endpoint. The engine's own URL has another port than the one on
// which it listens, and some clients use it.
func at(endpoint, queueURL string) string {
	path := queueURL
	if i := strings.Index(path, "://"); i >= 0 {
		path = path[i+len("://"):]
	}
	_, path, _ = strings.Cut(path, "/")
	return endpoint + "/" + path
}

func (a *app) printLocal(w io.Writer, r localReport, s topology.Settings, tries string) {
	me := shellWords(a.args[:1])
	say(w, "The embedded AWS runs at %s: stack %s, %d worker processes. Ctrl-C ends it.\n", r.Endpoint, r.Stack, len(r.Processes))
	for _, l := range r.Paused {
		say(w, "The %s lane is paused.\n", l)
	}
	if s.MaxAhead < topology.Default().MaxAhead {
		say(w, "Times are shortened: jobs may be due at most %v ahead, and have %d attempts.\n", s.MaxAhead, s.MaxAttempts)
	}
	for _, k := range r.Kinds {
		say(w, "The worker knows %s", k.Name)
		if len(k.Tables) > 0 {
			say(w, ", whose tables are %s", strings.Join(k.Tables, " and "))
		}
		say(w, ".\n")
	}
	say(w, `
In another terminal:

  export AWS_ENDPOINT_URL=%s AWS_DEFAULT_REGION=%s AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s
  export %s=%s FAKE_PROVIDER_URL=%s

`, r.Endpoint, r.Region, r.AccessKey, r.SecretKey, envStack, shellWords([]string{r.Stack}), r.Provider)
	if tries == "" {
		tries = sampleCommands(me, r.Kinds)
	}
	for line := range strings.Lines(tries) {
		if line != "\n" {
			line = "  " + line
		}
		say(w, "%s", line)
	}
	say(w, "\n")
}

func describeKind(k job.Description, names topology.Names) localKind {
	l := localKind{Name: k.Name, Tables: []string{}}
	for _, t := range k.Tables {
		l.Tables = append(l.Tables, names.Table(t.Name))
	}
	for _, sample := range k.Samples {
		// The job runs at once and without a deadline: the sample's times are long past.
		e, err := job.Decode([]byte(sample.Body))
		var payload bytes.Buffer
		if err == nil && sample.Key != "" && json.Compact(&payload, e.Payload) == nil {
			l.Sample, l.Key = fmt.Sprintf(`{"kind":%q,"payload":%s}`, k.Name, &payload), sample.Key
			break
		}
	}
	return l
}

// sampleCommands are the commands for a module that proposes none: they send a sample of each kind.
func sampleCommands(me string, kinds []localKind) string {
	var b strings.Builder
	for _, k := range kinds {
		if k.Sample != "" {
			fmt.Fprintf(&b, "# a sample of %s, and what became of it\n%s send %s\n%[2]s job %[4]s\n\n",
				k.Name, me, shellWords([]string{k.Sample}), shellWords([]string{k.Key}))
		}
	}
	fmt.Fprintf(&b, "%s status\n", me)
	return b.String()
}

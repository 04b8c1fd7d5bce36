package redrive_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"acklast/internal/job"
	"acklast/internal/redrive"
)

// explaining returns a service with three kinds: one knows the subject "s/1", one explains nothing, and
// one cannot be started.
func explaining(t *testing.T) *bench {
	b := newBench(t)
	b.kinds = job.NewCatalogue(testKind("knows", job.RunLate), testKind("silent", job.RunLate), testKind("unset", job.RunLate))
	b.deps.Start = func(_ context.Context, name string) (job.Kind, error) {
		switch name {
		case "knows":
			k := testKind(name, job.RunLate)
			k.Explain = func(_ context.Context, subject string) ([]job.Fact, error) {
				if subject != "s/1" {
					return nil, nil
				}
				return []job.Fact{{Name: "state", Value: "held"}}, nil
			}
			return k, nil
		case "silent":
			return testKind(name, job.RunLate), nil
		}
		return job.Kind{}, errors.New("SHOP_URL is not set for " + name)
	}
	return b
}

func TestExplain(t *testing.T) {
	known := redrive.Explanation{Kind: "knows", Facts: []job.Fact{{Name: "state", Value: "held"}}}
	unset := redrive.Explanation{Kind: "unset", Facts: []job.Fact{}, Error: "SHOP_URL is not set for unset"}
	for name, test := range map[string]struct {
		request redrive.Request
		want    []redrive.Explanation
	}{
		"a subject asks every kind":          {redrive.Request{Subject: "s/1"}, []redrive.Explanation{known, unset}},
		"a subject without records":          {redrive.Request{Subject: "s/2"}, []redrive.Explanation{unset}},
		"a key asks its kind":                {redrive.Request{Job: "knows/s%2F1/rest"}, []redrive.Explanation{known}},
		"a key whose kind explains nothing":  {redrive.Request{Job: "silent/s%2F1/rest"}, nil},
		"a key whose kind cannot be started": {redrive.Request{Job: "unset/s%2F1/rest"}, []redrive.Explanation{unset}},
	} {
		t.Run(name, func(t *testing.T) {
			b := explaining(t)
			test.request.Action = "explain"
			raw, err := json.Marshal(test.request)
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Handle(t.Context(), raw)
			if err != nil || got.Refused != "" {
				t.Fatalf("refused %q, %v", got.Refused, err)
			}
			if len(got.Explanations) != len(test.want) || len(test.want) > 0 && !reflect.DeepEqual(got.Explanations, test.want) {
				t.Errorf("explained %+v, want %+v", got.Explanations, test.want)
			}
		})
	}
}

func TestExplainIsRefused(t *testing.T) {
	for request, want := range map[string]string{
		`{"action":"explain"}`:                              "one of them",
		`{"action":"explain","job":"k/s/r","subject":"s"}`:  "one of them",
		`{"action":"explain","job":"no-key"}`:               "kind/subject/rest",
		`{"action":"explain","subject":"` + long() + `"}`:   "more than 1024 bytes",
		`{"action":"explain","job":"k/s/` + long() + `/r"}`: "more than 1024 bytes",
	} {
		b := explaining(t)
		if got, err := b.Handle(t.Context(), json.RawMessage(request)); err != nil || !strings.Contains(got.Refused, want) {
			t.Errorf("%.60s: refused %q, %v, want %q", request, got.Refused, err, want)
		}
	}
}

func long() string { return strings.Repeat("x", job.MaxKey+1) }

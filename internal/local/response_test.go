package local

import (
	"slices"
	"testing"
)

func TestConfirmed(t *testing.T) {
	ids := []string{"a", "b", "c"}
	all, none := ids, []string(nil)
	tests := []struct {
		name, response string
		want           []string
	}{
		{"no body", ``, all},
		{"null", `null`, all},
		{"empty object", `{}`, all},
		{"empty list", `{"batchItemFailures":[]}`, all},
		{"null list", `{"batchItemFailures":null}`, all},
		{"other fields only", `{"statusCode":200}`, all},
		{"white space around", " {\n} ", all},
		{"one failed", `{"batchItemFailures":[{"itemIdentifier":"b"}]}`, []string{"a", "c"}},
		{"one failed, listed twice", `{"batchItemFailures":[{"itemIdentifier":"b"},{"itemIdentifier":"b"}]}`, []string{"a", "c"}},
		{"one failed, with more fields", `{"x":1,"batchItemFailures":[{"itemIdentifier":"a","y":[]}]}`, []string{"b", "c"}},
		{"all failed", `{"batchItemFailures":[{"itemIdentifier":"c"},{"itemIdentifier":"a"},{"itemIdentifier":"b"}]}`, []string{}},

		{"not JSON", `oops`, none},
		{"cut off", `{"batchItemFailures":[`, none},
		{"trailing data", `{} {}`, none},
		{"only white space", ` `, none},
		{"empty identifier", `{"batchItemFailures":[{"itemIdentifier":""}]}`, none},
		{"null identifier", `{"batchItemFailures":[{"itemIdentifier":null}]}`, none},
		{"missing identifier", `{"batchItemFailures":[{}]}`, none},
		{"misspelt identifier", `{"batchItemFailures":[{"ItemIdentifier":"a"}]}`, none},
		{"null item", `{"batchItemFailures":[null]}`, none},
		{"unknown identifier", `{"batchItemFailures":[{"itemIdentifier":"z"}]}`, none},
		{"one good, one unknown", `{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"z"}]}`, none},
		{"identifier is a number", `{"batchItemFailures":[{"itemIdentifier":7}]}`, none},
		{"item is a string", `{"batchItemFailures":["a"]}`, none},
		{"list is an object", `{"batchItemFailures":{"itemIdentifier":"a"}}`, none},
		{"string", `"ok"`, none},
		{"number", `1`, none},
		{"array", `[]`, none},
		{"a name twice", `{"batchItemFailures":[],"batchItemFailures":[{"itemIdentifier":"a"}]}`, none},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Confirmed(ids, []byte(tt.response))
			if !slices.Equal(got, tt.want) {
				t.Errorf("confirmed %q, want %q", got, tt.want)
			}
			if (err != nil) != (tt.want == nil) {
				t.Errorf("error %v, want one exactly when nothing of the batch counts", err)
			}
		})
	}
}

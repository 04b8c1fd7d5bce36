package lanes_test

import (
	"strings"
	"testing"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

func TestCheckNew(t *testing.T) {
	text := func(s string) job.Attribute { return job.Attribute{Type: "String", String: s} }
	eleven := map[string]job.Attribute{}
	for _, n := range "abcdefghijk" {
		eleven[string(n)] = text("v")
	}
	for name, tt := range map[string]struct {
		message job.Message
		want    string // part of the error; empty if the message is valid
	}{
		"plain":             {job.Message{Body: "{}"}, ""},
		"largest":           {job.Message{Body: strings.Repeat("x", topology.MaxMessageBytes)}, ""},
		"one byte more":     {job.Message{Body: strings.Repeat("x", topology.MaxMessageBytes+1)}, "1048577 bytes"},
		"by its attributes": {job.Message{Body: strings.Repeat("x", topology.MaxMessageBytes), Attributes: map[string]job.Attribute{"a": text("v")}}, "1048584 bytes"},
		"too many":          {job.Message{Body: "{}", Attributes: eleven}, "11 attributes"},
		"control character": {job.Message{Body: "{\x01}"}, "U+0001"},
		"noncharacter":      {job.Message{Body: "\uFFFE"}, "U+FFFE"},
		"not UTF-8":         {job.Message{Body: "\xff"}, "UTF-8"},
		"attribute":         {job.Message{Body: "{}", Attributes: map[string]job.Attribute{"tenant.id_1-x": text("t")}}, ""},
		"reserved":          {job.Message{Body: "{}", Attributes: map[string]job.Attribute{job.MemoryAttribute: text("t")}}, "reserved"},
		"Amazon's":          {job.Message{Body: "{}", Attributes: map[string]job.Attribute{"AMAZON.x": text("t")}}, "reserved"},
		"dots":              {job.Message{Body: "{}", Attributes: map[string]job.Attribute{"a..b": text("t")}}, "two in a row"},
		"a space":           {job.Message{Body: "{}", Attributes: map[string]job.Attribute{"a b": text("t")}}, "letters"},
		"no value":          {job.Message{Body: "{}", Attributes: map[string]job.Attribute{"a": text("")}}, "no value"},
		"group":             {job.Message{Body: "{}", Group: "tenant-7!"}, ""},
		"group of 129":      {job.Message{Body: "{}", Group: strings.Repeat("g", 129)}, "128"},
		"group with space":  {job.Message{Body: "{}", Group: "a b"}, "ASCII"},
	} {
		t.Run(name, func(t *testing.T) {
			err := lanes.CheckNew(tt.message)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("CheckNew() = %v, want nil", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("CheckNew() = %v, want an error that names %q", err, tt.want)
			}
		})
	}
}

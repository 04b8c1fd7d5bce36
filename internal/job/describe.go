package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// descriptionsFormat is the format of encoded descriptions. It changes when an older reader would
// misread a newer writer.
const descriptionsFormat = 1

type descriptions struct {
	Format int           `json:"format"`
	Kinds  []Description `json:"kinds"`
}

// latePolicies are the names of the late policies, by their values.
var latePolicies = []string{RunLate: "run", ExpireLate: "expire"}

// The values that people and other languages would misread as numbers are written as text.
var (
	asText = json.WithMarshalers(json.JoinMarshalers(
		json.MarshalFunc(func(d time.Duration) ([]byte, error) { return json.Marshal(d.String()) }),
		json.MarshalFunc(func(p LatePolicy) ([]byte, error) { return json.Marshal(latePolicies[p]) }),
	))
	fromText = json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFunc(func(b []byte, d *time.Duration) (err error) {
			var text string
			if err := json.Unmarshal(b, &text); err != nil {
				return err
			}
			*d, err = time.ParseDuration(text)
			return err
		}),
		json.UnmarshalFunc(func(b []byte, p *LatePolicy) error {
			var text string
			if err := json.Unmarshal(b, &text); err != nil {
				return err
			}
			known := slices.Index(latePolicies, text)
			if known < 0 {
				return fmt.Errorf("late is %q, want one of %q", text, latePolicies)
			}
			*p = LatePolicy(known)
			return nil
		}),
	))
)

// EncodeDescriptions writes descriptions so that another program can read them.
func EncodeDescriptions(kinds []Description) ([]byte, error) {
	return json.Marshal(descriptions{Format: descriptionsFormat, Kinds: kinds}, jsontext.WithIndent("  "), asText)
}

// DecodeDescriptions reads what EncodeDescriptions wrote. A format that is newer than this program is
// refused: a part of it might be misread.
func DecodeDescriptions(encoded []byte) ([]Description, error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(encoded, &head); err != nil {
		return nil, fmt.Errorf("read the kinds' descriptions: %w", err)
	}
	if head.Format < 1 || head.Format > descriptionsFormat {
		return nil, fmt.Errorf("the kinds' descriptions have format %d, but this program reads formats up to %d: update it", head.Format, descriptionsFormat)
	}
	var d descriptions
	if err := json.Unmarshal(encoded, &d, fromText); err != nil {
		return nil, fmt.Errorf("read the kinds' descriptions: %w", err)
	}
	return d.Kinds, nil
}

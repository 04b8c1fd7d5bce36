package job

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// digestRule names the rule by which a digest is made. A change of the rule must change the name.
const digestRule = "1"

// Digest returns the digest of a payload. Two payloads with the same content have the same digest, whatever the
// order of their names and the form of their numbers. The volatile top-level fields do not count. The digest
// begins with the id of its rule.
func Digest(payload jsontext.Value, volatile []string) (string, error) {
	canonical := slices.Clone(payload)
	if len(volatile) > 0 || payload.Kind() != jsontext.KindBeginObject {
		fields := map[string]jsontext.Value{}
		if err := json.Unmarshal(payload, &fields); err != nil {
			return "", invalid("payload: %w", jsonError(err, nil))
		}
		for _, name := range volatile {
			delete(fields, name)
		}
		var err error
		if canonical, err = json.Marshal(fields, json.Deterministic(true)); err != nil {
			return "", invalid("payload: %w", jsonError(err, nil))
		}
	}
	// Whole numbers stay as they are: as floats, two large ones could become one.
	if err := canonical.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return "", invalid("payload: %w", jsonError(err, nil))
	}
	sum := sha256.Sum256(canonical)
	return digestRule + ":" + hex.EncodeToString(sum[:16]), nil
}

// DigestsDiffer says whether two digests prove two different payloads. It is false if the digests have
// different rules, or one is empty.
func DigestsDiffer(a, b string) bool {
	ruleA, _, okA := strings.Cut(a, ":")
	ruleB, _, okB := strings.Cut(b, ":")
	return okA && okB && ruleA == ruleB && a != b
}

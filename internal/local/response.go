package local

import (
	"fmt"

	"github.com/go-json-experiment/json"
)

// Confirmed says which messages of a batch a function's response confirms, so that they may be
// deleted. It follows what AWS documents for an SQS event source with ReportBatchItemFailures:
//
//   - an empty or null response, and an empty or null batchItemFailures, confirm the whole batch;
//   - an item whose itemIdentifier is missing, empty, null or not of this batch, and a response that
//     is not valid JSON, confirm nothing: the error says why;
//   - anything else confirms the messages that are not listed.
//
// Where AWS documents nothing (a response that is JSON but no object, a name that stands twice), it
// confirms nothing, because a message that comes again does less harm than one that is lost.
func Confirmed(ids []string, response []byte) ([]string, error) {
	if len(response) == 0 {
		return ids, nil
	}
	var r struct {
		BatchItemFailures []struct {
			ItemIdentifier string `json:"itemIdentifier"`
		} `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(response, &r); err != nil {
		return nil, fmt.Errorf("decode the function's response: %w", err)
	}
	failed := make(map[string]bool, len(r.BatchItemFailures))
	for _, f := range r.BatchItemFailures {
		failed[f.ItemIdentifier] = true
	}
	confirmed := make([]string, 0, len(ids))
	for _, id := range ids {
		if !failed[id] {
			confirmed = append(confirmed, id)
		}
		delete(failed, id)
	}
	for id := range failed {
		return nil, fmt.Errorf("the function's response lists %q, which is not in the batch", id)
	}
	return confirmed, nil
}

package dynamo

import "acklast/internal/ledger"

// Stored is an entry as it is read back.
func Stored(e ledger.Entry) ledger.Entry {
	e.Version = max(e.Version, 1)
	s, err := stored(e)
	if err != nil {
		panic(err)
	}
	return s
}

// Marshal and Unmarshal are an entry's form in the table.
var (
	Marshal   = marshal
	Unmarshal = unmarshal
)

// GroupTries is how often a group's transaction is tried in place.
const GroupTries = groupTries

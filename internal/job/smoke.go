package job

// SmokeKind is the engine's own kind. Every worker knows it, and no other kind may have its name. Its jobs change
// nothing but the ledger: "acklast smoke" sends them to check a stack.
const SmokeKind = "acklast.smoke"

// SmokePayload is the payload of a job of SmokeKind.
type SmokePayload struct {
	// ID is different in every check.
	ID string `json:"id"`
}

package job

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// MemoryAttribute is the name of the one message attribute that is ours.
const MemoryAttribute = "acklast"

// MemoryFormat is the form in which the attribute is written.
const MemoryFormat = 1

// NewerError: the format of the thing that was read is known only to a newer version of this program. No part
// of it was used.
type NewerError struct {
	// What is the thing that was read, such as "entry".
	What string
	// Format is its format, Known the newest that this version reads.
	Format, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s has format %d, but this version reads up to %d: finish the roll-out of the newer version", e.What, e.Format, e.Known)
}

// maxMemory bounds the size of an attribute that is read as a Memory. Our own are far smaller.
const maxMemory = 8 << 10

// maxErrorText bounds the error text in a Memory and in an entry, in bytes.
const maxErrorText = 512

// Memory is the content of our own attribute, which travels with a message. It is a cache: the ledger outranks
// it, and a Memory that is malformed or forged counts as missing.
type Memory struct {
	// Attempt is the number of failed attempts when the message was sent.
	Attempt int `json:"attempt,omitzero"`
	// Contentions is how often conflicting writes deferred the job since the entry was last opened,
	// ContendedFrom when the first of them did.
	Contentions   int       `json:"contentions,omitzero"`
	ContendedFrom time.Time `json:"contendedFrom,omitzero"`
	// Outages is how often in a row the ledger's trouble handed the job back, OutageFrom when that began. OutageFrom
	// stays after the trouble, until the job is isolated: a job that expires later was held back.
	Outages    int       `json:"outages,omitzero"`
	OutageFrom time.Time `json:"outageFrom,omitzero"`
	// UnusedClaim is the owner token of a claim that may still stand, although its delivery made no call under it and
	// never will. Another delivery may take it back, and then its hand-over drops it. So does an isolation.
	UnusedClaim string `json:"unusedClaim,omitzero"`
	// Redrives is the entry's generation when the message was sent.
	Redrives int `json:"redrives,omitzero"`
	// Opened is when the entry was last reopened; the metrics of a reopened job count from there.
	Opened time.Time `json:"opened,omitzero"`
	// Run is the redrive run that sent the message.
	Run string `json:"run,omitzero"`
	// FirstSent is when the job was first sent.
	FirstSent time.Time `json:"firstSent,omitzero"`
	// MessageID is the id of the job's first message.
	MessageID string `json:"messageId,omitzero"`

	// Key is the job's, where the body may not be read to find it: in a message that a run sent, and on the DLQ in
	// one that was convicted. Check it against the entry before you use it.
	Key string `json:"key,omitzero"`

	// Class, Cause, Error and At are present on the DLQ only.
	Class Class     `json:"class,omitzero"`
	Cause Cause     `json:"cause,omitzero"`
	Error string    `json:"error,omitzero"`
	At    time.Time `json:"at,omitzero"`
	// Fingerprint is the part of Error that is the same for other jobs.
	Fingerprint string `json:"fingerprint,omitzero"`
	// Copy says that the message is a copy of an isolated job, and not the message that was isolated. Putting
	// it back does not reopen the entry.
	Copy bool `json:"copy,omitzero"`

	// newer is the text of an attribute with a newer format. It travels on unchanged.
	newer string
}

// Cleared returns the memory without the fields that only a message on the DLQ carries.
func (m Memory) Cleared() Memory {
	m.Class, m.Cause, m.Error, m.At, m.Fingerprint, m.Copy = "", "", "", time.Time{}, "", false
	if m.Run == "" {
		m.Key = ""
	}
	return m
}

// written is the attribute's text: the memory and the format in which it is written.
type written struct {
	Format int `json:"v,omitzero"`
	Memory `json:",inline"`
}

// ParseMemory reads our attribute. Its error says what is wrong. With a *NewerError the Memory has no fields,
// and its Encode returns the attribute unchanged. With any other error it is the zero Memory.
func ParseMemory(a Attribute) (Memory, error) {
	var w written
	if a.Type != "String" {
		return Memory{}, fmt.Errorf("attribute %s has type %q, want String", MemoryAttribute, a.Type)
	}
	if len(a.String) > maxMemory {
		return Memory{}, fmt.Errorf("attribute %s has %d bytes, more than %d", MemoryAttribute, len(a.String), maxMemory)
	}
	var format struct {
		Format int `json:"v"`
	}
	if err := json.Unmarshal([]byte(a.String), &format); err != nil {
		return Memory{}, fmt.Errorf("attribute %s: %w", MemoryAttribute, jsonError(err, format))
	}
	if format.Format > MemoryFormat {
		return Memory{newer: a.String}, &NewerError{What: "attribute " + MemoryAttribute, Format: format.Format, Known: MemoryFormat}
	}
	if err := json.Unmarshal([]byte(a.String), &w); err != nil {
		return Memory{}, fmt.Errorf("attribute %s: %w", MemoryAttribute, jsonError(err, w))
	}
	m := w.Memory
	if m.Attempt < 0 || m.Contentions < 0 || m.Outages < 0 || m.Redrives < 0 {
		return Memory{}, errors.New("attribute " + MemoryAttribute + " has a negative count")
	}
	if len(m.Key) > MaxKey || m.Key != safeCharacters(m.Key) {
		return Memory{}, errors.New("attribute " + MemoryAttribute + " has a key that no job can have")
	}
	for _, text := range []string{m.UnusedClaim, m.Run, m.MessageID, string(m.Class), string(m.Cause), m.Error, m.Fingerprint} {
		if text != SafeText(text) { // an escape in JSON can stand for a character that SQS would refuse
			return Memory{}, errors.New("attribute " + MemoryAttribute + " has a text that is too long or has a character SQS does not carry")
		}
	}
	return m, nil
}

// Encode writes the attribute. Its text has only characters that SQS accepts, and a bounded size.
func (m Memory) Encode() (Attribute, error) {
	if m.newer != "" {
		return Attribute{Type: "String", String: m.newer}, nil
	}
	m.Error, m.Fingerprint = SafeText(m.Error), SafeText(m.Fingerprint)
	b, err := json.Marshal(written{MemoryFormat, m}, json.Deterministic(true))
	if err != nil {
		return Attribute{}, fmt.Errorf("encode attribute %s: %w", MemoryAttribute, err)
	}
	return Attribute{Type: "String", String: string(b)}, nil
}

// SafeText makes an error's text fit to travel and to be stored: at most 512 bytes of valid UTF-8, and only
// characters that SQS accepts (tab, line feed, carriage return, #x20 to #xFFFD without surrogates, and those
// above #xFFFF).
func SafeText(s string) string {
	return Shorten(safeCharacters(s), maxErrorText)
}

// Shorten returns a text of at most so many bytes, which are more than a few, with a mark where it was cut.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const more = "…"
	cut := most - len(more)
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}

func safeCharacters(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r', r >= 0x20 && r <= 0xFFFD, r >= 0x10000:
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

package lanes

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// The names of a message's system attributes, in ReceiveMessage and in Lambda's events.
const (
	systemSentTimestamp = "SentTimestamp"
	systemReceiveCount  = "ApproximateReceiveCount"
	systemGroup         = "MessageGroupId"
	systemTraceHeader   = "AWSTraceHeader"
)

// Split takes our own attribute out of a message's attributes and returns the rest, which is the sender's. It
// returns attrs itself if ours is not among them. The error says what is wrong with ours; the memory is then
// zero.
func Split(attrs map[string]job.Attribute) (sender map[string]job.Attribute, m job.Memory, err error) {
	own, ok := attrs[job.MemoryAttribute]
	if !ok {
		return attrs, job.Memory{}, nil
	}
	m, err = job.ParseMemory(own)
	if len(attrs) == 1 {
		return nil, m, err
	}
	sender = make(map[string]job.Attribute, len(attrs)-1)
	for name, a := range attrs {
		if name != job.MemoryAttribute {
			sender[name] = a
		}
	}
	return sender, m, err
}

// ReadAttributes fills in the sender's attributes and our memory. A schedule's dead letter becomes the message that
// the schedule was to send; its memory then says what failed. Call it after ReadSystem. The error is Split's.
func ReadAttributes(m *job.Message, attrs map[string]job.Attribute) error {
	attrs, failure := m.UnwrapSchedule(attrs)
	var err error
	m.Attributes, m.Memory, err = Split(attrs)
	var newer *job.NewerError
	if failure != "" && !errors.As(err, &newer) {
		m.Memory.Class, m.Memory.Cause, m.Memory.At = job.Transient, job.CauseSchedule, m.SentAt
		m.Memory.Error = job.SafeText(failure)
		m.Memory.Fingerprint = job.Fingerprint(m.Memory.Error)
	}
	return err
}

// ReadSystem fills in a message's fields from SQS's system attributes. An attribute that is missing or not
// readable leaves its field zero. A message without a time counts as older than any isolation.
func ReadSystem(m *job.Message, system map[string]string) {
	if ms, err := strconv.ParseInt(system[systemSentTimestamp], 10, 64); err == nil {
		m.SentAt = time.UnixMilli(ms).UTC()
	}
	m.ReceiveCount, _ = strconv.Atoi(system[systemReceiveCount])
	m.Group = system[systemGroup]
	m.TraceHeader = system[systemTraceHeader]
}

// Fits says whether the message's memory can travel with it, if necessary without its error text. An empty
// memory always fits.
func Fits(m job.Message) bool {
	if m.Memory == (job.Memory{}) {
		return true
	}
	_, ok := ownAttribute(m)
	return ok
}

// SizeOf returns the size in bytes of the attribute that carries a memory.
func SizeOf(memory job.Memory) (int, error) {
	a, err := memory.Encode()
	if err != nil {
		return 0, err
	}
	return attributeSize(job.MemoryAttribute, a), nil
}

// HasRoom says whether a message has room for our attribute of the size, as Fits says it for a memory.
func HasRoom(m job.Message, size int) bool {
	count, used := senderSize(m)
	return count < topology.MaxAttributes && used+size <= topology.MaxMessageBytes
}

// ownAttribute returns the attribute that carries the message's memory, and whether there is one.
func ownAttribute(m job.Message) (job.Attribute, bool) {
	count, size := senderSize(m)
	if m.Memory == (job.Memory{}) || count >= topology.MaxAttributes {
		return job.Attribute{}, false
	}
	room := topology.MaxMessageBytes - size
	a, ok := encode(m.Memory, room)
	if !ok && m.Memory.Error != "" {
		short := m.Memory
		short.Error = ""
		a, ok = encode(short, room)
	}
	return a, ok
}

func encode(memory job.Memory, room int) (job.Attribute, bool) {
	a, err := memory.Encode()
	// A memory that cannot be encoded, or that SQS would refuse, must not stop its message: it counts as one
	// that does not fit. JSON escapes all the characters that SQS refuses but these two. A forged id may
	// contain them.
	ok := err == nil && attributeSize(job.MemoryAttribute, a) <= room && !strings.ContainsAny(a.String, "\uFFFE\uFFFF")
	return a, ok
}

// senderSize returns how many attributes of the sender's a message has, and its size in bytes without our own
// attribute. It counts as SQS does: the body, and each attribute's name, type and value, but neither the
// message group nor the trace header.
func senderSize(m job.Message) (count, size int) {
	size = len(m.Body)
	for name, a := range m.Attributes {
		if name != job.MemoryAttribute {
			count++
			size += attributeSize(name, a)
		}
	}
	return count, size
}

func attributeSize(name string, a job.Attribute) int {
	size := len(name) + len(a.Type)
	if isBinary(a.Type) {
		return size + len(a.Binary)
	}
	return size + len(a.String)
}

// isBinary says whether a data type, with or without a custom label, has a binary value.
func isBinary(dataType string) bool {
	return dataType == "Binary" || strings.HasPrefix(dataType, "Binary.")
}

// refuse says why a message must not be put into a batch, or returns nil. It refuses a message only if it would
// be changed on its way, or if it would make the other entries of its call fail. Everything else is left to
// SQS, which may accept a message again that it once delivered.
func refuse(m job.Message) *Error {
	count, size := senderSize(m)
	switch {
	case m.Body == "":
		return &Error{Code: "MissingParameter", SenderFault: true, Message: "the body is empty"}
	case size > topology.MaxMessageBytes:
		return &Error{Code: "BatchRequestTooLong", SenderFault: true,
			Message: "the message has " + strconv.Itoa(size) + " bytes, more than " + strconv.Itoa(topology.MaxMessageBytes)}
	case count > topology.MaxAttributes:
		return &Error{Code: "InvalidParameterValue", SenderFault: true,
			Message: "the message has " + strconv.Itoa(count) + " attributes, more than " + strconv.Itoa(topology.MaxAttributes)}
	// A JSON encoder replaces bytes that are not UTF-8.
	case !utf8.ValidString(m.Body):
		return &Error{Code: "InvalidMessageContents", SenderFault: true, Message: "the body is not UTF-8"}
	}
	for name, a := range m.Attributes {
		switch {
		case a.Type == "":
			return &Error{Code: "InvalidParameterValue", SenderFault: true, Message: "attribute " + strconv.Quote(name) + " has no type"}
		case !utf8.ValidString(a.String):
			return &Error{Code: "InvalidMessageContents", SenderFault: true, Message: "attribute " + strconv.Quote(name) + " is not UTF-8"}
		}
	}
	return nil
}

package lanes

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// The limits that SQS documents for names of attributes and for message groups.
const (
	maxAttributeName = 256
	maxGroup         = 128
)

// CheckNew says whether a new message can be sent: its size, its characters, its attributes and its
// group, by the rules that SQS documents. Some engines accept more than SQS does, so a producer checks
// before it sends. Messages that were received are not checked: SQS has accepted them before.
func CheckNew(m job.Message) error {
	count, size := senderSize(m)
	if size > topology.MaxMessageBytes {
		return fmt.Errorf("the message has %d bytes with its attributes, more than SQS's %d", size, topology.MaxMessageBytes)
	}
	if count > topology.MaxAttributes {
		return fmt.Errorf("the message has %d attributes, more than SQS's %d", count, topology.MaxAttributes)
	}
	if err := CheckText(m.Body); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	for name, a := range m.Attributes {
		if err := CheckAttribute(name, a); err != nil {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	return CheckGroup(m.Group)
}

// CheckAttribute checks the name and the value of a sender's attribute of type String.
func CheckAttribute(name string, a job.Attribute) error {
	if err := checkAttributeName(name); err != nil {
		return err
	}
	if a.String == "" {
		return errors.New("it has no value")
	}
	return CheckText(a.String)
}

func checkAttributeName(name string) error {
	lower := strings.ToLower(name)
	switch {
	case name == job.MemoryAttribute:
		return errors.New("the name is reserved for acklast itself")
	case name == "" || len(name) > maxAttributeName:
		return fmt.Errorf("a name has 1 to %d characters", maxAttributeName)
	case strings.ContainsFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
	}):
		return errors.New("a name consists of letters, digits, '_', '-' and '.'")
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return errors.New("names that begin with AWS. or Amazon. are reserved")
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return errors.New("a name neither begins nor ends with '.', nor has two in a row")
	}
	return nil
}

// CheckText refuses the characters that SQS refuses. An escape in JSON is not one of them.
func CheckText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	for i, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r', r >= 0x20 && r <= 0xFFFD, r >= 0x10000:
		default:
			return fmt.Errorf("character %U at byte %d, which SQS does not carry", r, i)
		}
	}
	return nil
}

// CheckGroup checks a message group id. An empty one means that the message has none.
func CheckGroup(group string) error {
	if len(group) > maxGroup || strings.ContainsFunc(group, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
		return fmt.Errorf("a message group has at most %d letters, digits and punctuation marks of ASCII", maxGroup)
	}
	return nil
}

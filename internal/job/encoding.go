package job

import (
	"bytes"
	"errors"
)

// CheckEncoding looks at the beginning of a text that people saved or pasted. Its error says what is wrong if the
// text is no UTF-8 without a byte order mark.
func CheckEncoding(head []byte) error {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return errors.New("it begins with a byte order mark: save it as UTF-8 without one")
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return errors.New("it is UTF-16: save it as UTF-8")
	case bytes.IndexByte(head, 0) >= 0:
		return errors.New("it has a zero byte, so it is not UTF-8 text: save it as UTF-8, or name another file")
	}
	return nil
}

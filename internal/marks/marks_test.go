package marks_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"acklast/internal/marks"
)

func TestEveryFormIsFound(t *testing.T) {
	mark := marks.New("recipient")
	encoded, err := json.Marshal(map[string]string{"to": "<" + mark + ">\n"})
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]string{
		"plain": "sent to " + mark, "upper case": strings.ToUpper(mark), "JSON": string(encoded), "quoted": fmt.Sprintf("%q", encoded),
		"URL": url.QueryEscape("to=" + mark + "&"), "hex": hex.EncodeToString([]byte("a " + mark)),
	}
	for i := range 4 {
		text := []byte(strings.Repeat("?", i) + mark + "~~~"[:i%4])
		forms[fmt.Sprint("base64 ", i)], forms[fmt.Sprint("base64 for URLs ", i)] = base64.StdEncoding.EncodeToString(text), base64.RawURLEncoding.EncodeToString(text)
	}
	for name, text := range forms {
		if marks.In(text, mark) == "" {
			t.Errorf("not found in %s: %s", name, text)
		}
	}
	if form := marks.In("mark7of another thing", mark); form != "" {
		t.Errorf("found as %s where it is not", form)
	}
}

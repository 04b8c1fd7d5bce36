package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestThePictureHasTheChosenLines(t *testing.T) {
	story := "begins <here>\n\n1. One\n   first\n\n2. Two\n   second\n\nWhat was sent:\n   " + strings.Repeat("x", 200) + "\n"
	var out strings.Builder
	if err := run([]string{"-chapters", "2"}, strings.NewReader(story), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"begins &lt;here&gt;", "2. Two", "   second", "What was sent:", "x…<"} {
		if !strings.Contains(out.String(), strings.ReplaceAll(want, " ", hardSpace)) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(out.String(), "first") {
		t.Error("a chapter that was not chosen is there")
	}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

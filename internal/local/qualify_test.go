package local

import (
	"net/url"
	"testing"
)

func TestQualify(t *testing.T) {
	for path, want := range map[string]string{
		"/2015-03-31/functions/f%3Aoperate/invocations":                "/2015-03-31/functions/f/invocations?Qualifier=operate",
		"/2015-03-31/functions/f:operate/invocations":                  "/2015-03-31/functions/f/invocations?Qualifier=operate",
		"/2015-03-31/functions/f/invocations?Qualifier=approve":        "/2015-03-31/functions/f/invocations?Qualifier=approve",
		"/2015-03-31/functions/arn:aws:lambda:r:1:function:f/versions": "/2015-03-31/functions/arn:aws:lambda:r:1:function:f/versions",
		"/queue/f:operate": "/queue/f:operate",
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if qualify(u); u.String() != want {
			t.Errorf("%s became %s, want %s", path, u, want)
		}
	}
}

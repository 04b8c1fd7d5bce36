package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "acklast.template.json")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestRunSaysWhatIsMissing(t *testing.T) {
	template := write(t, `{"Resources":{"Key":{"Type":"AWS::KMS::Key","DeletionPolicy":"Retain"}}}`)
	for want, args := range map[string][]string{
		"want -account, -region and a template":    {template},
		"no such file":                             {"-account", "1", "-region", "r", "nowhere.json"},
		"invalid character":                        {"-account", "1", "-region", "r", write(t, "<")},
		"nothing in it outlives the stack":         {"-account", "1", "-region", "r", write(t, `{"Resources":{"Q":{"Type":"AWS::SQS::Queue","DeletionPolicy":"Delete"}}}`)},
		"name its id with -key":                    {"-account", "1", "-region", "r", template},
		"does not know how to name it":             {"-account", "1", "-region", "r", write(t, `{"Resources":{"B":{"Type":"AWS::S3::Bucket","DeletionPolicy":"Retain"}}}`)},
		"flag provided but not defined: -nonsense": {"-nonsense"},
	} {
		var out bytes.Buffer
		if err := run(args, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
		if out.Len() != 0 {
			t.Errorf("%q prints %s", args, out.String())
		}
	}
}

func TestQueuesInChinaHaveAnotherDomain(t *testing.T) {
	template := write(t, `{"Resources":{"Q":{"Type":"AWS::SQS::Queue","DeletionPolicy":"Retain","Properties":{"QueueName":"q"}}}}`)
	var out bytes.Buffer
	if err := run([]string{"-account", "1", "-region", "cn-north-1", template}, &out); err != nil || !strings.Contains(out.String(), `"https://sqs.cn-north-1.amazonaws.com.cn/1/q"`) {
		t.Errorf("%v: %s", err, out.String())
	}
}

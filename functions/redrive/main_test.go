package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"acklast/internal/redrive"
)

func TestMissingVariableIsNamed(t *testing.T) {
	env := map[string]string{
		redrive.EnvStack: "s", redrive.EnvSourceURL: "u", redrive.EnvRecoveryURL: "u", redrive.EnvDLQURL: "u",
	}
	for missing := range env {
		err := run(t.Context(), func(name string) string {
			if name == missing {
				return ""
			}
			return env[name]
		}, &bytes.Buffer{}, func(any) { t.Error("served") })
		if err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without %s: %v", missing, err)
		}
	}
}

func TestServesRequests(t *testing.T) {
	env := map[string]string{
		redrive.EnvStack: "s", redrive.EnvSourceURL: "u", redrive.EnvRecoveryURL: "u", redrive.EnvDLQURL: "u",
		"AWS_REGION": "us-east-1",
	}
	t.Setenv("AWS_REGION", "us-east-1")
	served := false
	err := run(t.Context(), func(name string) string { return env[name] }, &bytes.Buffer{}, func(handler any) {
		served = true
		h := handler.(func(context.Context, json.RawMessage) (redrive.Response, error))
		got, err := h(t.Context(), json.RawMessage(`{"action":"list"}`))
		if err != nil || !strings.Contains(got.Refused, "alias operate") {
			t.Errorf("without an alias: %+v, %v", got, err)
		}
	})
	if err != nil || !served {
		t.Fatalf("served %v, %v", served, err)
	}
}

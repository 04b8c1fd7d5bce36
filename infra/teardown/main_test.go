package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// scheduler answers ListSchedules for one group, and knows no other.
func scheduler(t *testing.T, group string, schedules int) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet || r.URL.Path != "/schedules":
			http.Error(w, "{}", http.StatusInternalServerError)
		case schedules < 0:
			w.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
			http.Error(w, `{"Message":"no"}`, http.StatusForbidden)
		case r.URL.Query().Get("ScheduleGroup") != group:
			w.Header().Set("X-Amzn-ErrorType", "ResourceNotFoundException")
			http.Error(w, `{"Message":"no group"}`, http.StatusNotFound)
		default:
			_, _ = fmt.Fprintf(w, `{"Schedules":[%s]}`, strings.Join(slices.Repeat([]string{`{"Name":"n"}`}, schedules), ","))
		}
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
}

func TestNothingIsDestroyedWhileJobsWait(t *testing.T) {
	const list, destroy = "cdk list -c env=prod", "cdk destroy -c env=prod"
	for name, tt := range map[string]struct {
		stack     string
		listing   error
		schedules int
		ran       []string
		want      string // in the error
	}{
		"no schedules":        {"shop\n", nil, 0, []string{list, destroy}, ""},
		"no group":            {"gone\n", nil, 1, []string{list, destroy}, ""},
		"two schedules":       {"shop\n", nil, 2, []string{list}, "2 jobs of shop wait in EventBridge Scheduler"},
		"very many":           {"shop\n", nil, 1000, []string{list}, "at least 1000 jobs of shop"},
		"how to go on":        {"shop\n", nil, 1, []string{list}, "aws scheduler delete-schedule-group --name shop-scheduled"},
		"no right to count":   {"shop\n", nil, -1, []string{list}, "nobody knows whether jobs wait"},
		"no stack":            {"", nil, 0, []string{list}, "names 0 stacks"},
		"two stacks":          {"shop\nother\n", nil, 0, []string{list}, "names 2 stacks, want one: shop, other"},
		"settings are broken": {"", errors.New("exit status 1"), 0, []string{list}, "cdk list: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			scheduler(t, "shop-scheduled", tt.schedules)
			var ran []string
			err := run(t.Context(), []string{"cdk", "-c", "env=prod"}, func(_ context.Context, wanted bool, name string, args ...string) (string, error) {
				ran = append(ran, strings.Join(append([]string{name}, args...), " "))
				if wanted {
					return tt.stack, tt.listing
				}
				return "", nil
			})
			if !slices.Equal(ran, tt.ran) {
				t.Errorf("ran %q, want %q", ran, tt.ran)
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestTheCDKIsNamed(t *testing.T) {
	if err := run(t.Context(), nil, command); err == nil {
		t.Error("no error without a command")
	}
}

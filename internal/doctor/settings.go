package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"acklast/internal/topology"
)

// Wanted are the settings that the stack should have.
type Wanted struct {
	Settings topology.Settings
	Infra    topology.Infra
	// Checked says whether deployments are checked; nil if the file does not say.
	Checked *bool
	// Unread are the names of settings that the doctor does not compare.
	Unread []string
}

// ReadSettings reads a settings file, such as infra/environments/default.json, over the default numbers.
func ReadSettings(file []byte) (Wanted, error) {
	w := Wanted{Settings: topology.Default(), Infra: topology.DefaultInfra()}
	values := map[string]any{}
	if len(file) > 0 {
		d := json.NewDecoder(bytes.NewReader(file))
		d.UseNumber() // as a float, 1000000 would be printed as 1e+06
		if err := d.Decode(&values); err != nil {
			where := ""
			var mistyped *json.UnmarshalTypeError
			if !errors.As(err, &mistyped) {
				where = "; it ends too early"
			}
			if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
				where = fmt.Sprintf("; it is no JSON from byte %d on", syntax.Offset)
			}
			return w, fmt.Errorf("a settings file is one JSON object, such as {\"batchSize\": 5}%s", where)
		}
	}
	s, i := &w.Settings, &w.Infra
	periods := map[string]*time.Duration{
		"workerTimeout": &s.WorkerTimeout, "batchWindow": &s.BatchWindow, "laneVisibility": &s.LaneVisibility,
		"startMargin": &s.StartMargin, "handoverMargin": &s.HandoverMargin, "backoffBase": &s.BackoffBase, "backoffCap": &s.BackoffCap,
		"attemptTime": &s.AttemptTime, "scheduleFrom": &s.ScheduleFrom, "laneRetention": &s.LaneRetention, "dlqRetention": &s.DLQRetention,
		"ledgerRetention": &s.LedgerRetention, "redriveTimeout": &i.RedriveTimeout,
	}
	counts := map[string]*int{
		"workerMemory": &s.WorkerMemoryMB, "batchSize": &s.BatchSize, "maxReceiveCount": &s.MaxReceiveCount,
		"sourceConcurrency": &s.SourceConcurrency, "recoveryConcurrency": &s.RecoveryConcurrency, "maxAttempts": &s.MaxAttempts,
		"maxRedrives": &s.MaxRedrives, "redriveMemory": &i.RedriveMemoryMB, "workerReserved": &i.WorkerReserved,
		"redriveReserved": &i.RedriveReserved, "accountConcurrency": &i.AccountConcurrency,
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := fmt.Sprint(values[name])
		name = strings.TrimPrefix(name, "acklast:")
		var err error
		switch {
		case periods[name] != nil:
			*periods[name], err = period(text)
		case counts[name] != nil:
			*counts[name], err = strconv.Atoi(text)
		case name == "checkedDeployment" && (text == "true" || text == "false"):
			w.Checked = new(text == "true")
		case text == "": // chosen as nothing
		default:
			w.Unread = append(w.Unread, name)
		}
		if err != nil {
			return w, fmt.Errorf("%s is %q, want a whole number, or a duration such as 30s or 4d", name, text)
		}
	}
	return w, nil
}

// period reads a duration, also in days.
func period(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if most := int(math.MaxInt64 / (24 * time.Hour)); err == nil && (n > most || n < -most) {
			err = strconv.ErrRange
		}
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// settings compares both functions with the settings.
func (d *Doctor) settings(ctx context.Context, r *report) {
	const again = "the settings say %v: deploy again, or change the settings' file"
	for _, f := range []struct {
		function string
		timeout  time.Duration
		memory   int
		env      map[string]string
	}{
		{d.Names.WorkerFunction, d.Want.Settings.WorkerTimeout, d.Want.Settings.WorkerMemoryMB, d.Environment},
		{d.Names.RedriveFunction, d.Want.Infra.RedriveTimeout, d.Want.Infra.RedriveMemoryMB, nil},
	} {
		timeout, memory, variables := "timeout of "+f.function, "memory of "+f.function, "variables of "+f.function
		out, err := d.Lambda.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &f.function})
		switch {
		case missing(err):
			r.judge(timeout, false, "no function", "%s does not exist: deploy the stack", f.function)
			continue
		case err != nil:
			r.failed(err, "lambda:GetFunctionConfiguration", timeout, memory)
			if f.env != nil {
				r.failed(err, "lambda:GetFunctionConfiguration", variables)
			}
			continue
		}
		r.judge(timeout, int64(aws.ToInt32(out.Timeout)) == seconds(f.timeout), time.Duration(aws.ToInt32(out.Timeout))*time.Second, again, f.timeout)
		r.judge(memory, int(aws.ToInt32(out.MemorySize)) == f.memory, aws.ToInt32(out.MemorySize), again, f.memory)
		if f.env == nil {
			continue
		}
		if out.Environment == nil || len(out.Environment.Variables) == 0 {
			r.unsure(variables, "Lambda answered without variables: reading them under a key of your own needs kms:Decrypt")
			continue
		}
		var differ []string
		for _, name := range slices.Sorted(maps.Keys(f.env)) {
			if got := out.Environment.Variables[name]; got != f.env[name] {
				differ = append(differ, fmt.Sprintf("%s is %q, not %q", name, got, f.env[name]))
			}
		}
		r.judge(variables, len(differ) == 0, fmt.Sprintf("%d of %d as the settings say", len(f.env)-len(differ), len(f.env)),
			"%s: deploy again, or change the settings' file", strings.Join(differ, "; "))
	}
	if len(d.Want.Unread) > 0 {
		r.unsure("other settings", "these are not compared: %s. \"cdk diff\" compares them", strings.Join(d.Want.Unread, ", "))
	}
}

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"acklast/internal/kinds/reminder"
	"acklast/internal/retry"
)

// The lanes, as the setting paused names them.
const (
	laneSource   = "source"
	laneRecovery = "recovery"
)

// maxSubnets is how many subnets Lambda allows for a function.
const maxSubnets = 16

var (
	configurationSet = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	pair             = regexp.MustCompile(`^[A-Za-z0-9_.:/+@-]+=`)
	vpcID            = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	subnetID         = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	policyARN        = regexp.MustCompile(`^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$`)
	topicARN         = regexp.MustCompile(`^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$`)
)

func (s Settings) validate() error {
	// The stack's own rules, and those of the kinds for the worker's environment.
	errs := []error{s.props().Validate()}
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(s.Stack != "", "stack is empty, and everything is named after it")
	env := s.Reminders.Environment()
	c, err := reminder.ParseConfig(func(name string) string { return env[name] })
	must(err != nil || s.Reminders.Provider == "" || c.Timeout <= retry.LongestCall(s.Numbers.AttemptTime),
		"provider timeout is %v, but an attempt has only %v to make its call: nine tenths of attemptTime = %v",
		c.Timeout, retry.LongestCall(s.Numbers.AttemptTime), s.Numbers.AttemptTime)
	for _, one := range s.providerSettings() {
		must(!one.set || slices.Contains(one.of, s.Reminders.Provider),
			"%s is set, but provider is %q: it belongs to %s", one.name, s.Reminders.Provider, strings.Join(one.of, " and "))
	}
	must(s.Reminders.Provider != reminder.ProviderHTTP || s.Reminders.SecretARN == "" || strings.HasPrefix(s.Reminders.URL, "https://"),
		"providerUrl is %q with a secret, which would travel in clear text: use https", s.Reminders.URL)
	must(s.Reminders.SESSet == "" || configurationSet.MatchString(s.Reminders.SESSet),
		"SES's configuration set is %q, but its name has 1 to 64 letters, digits, hyphens and underscores", s.Reminders.SESSet)
	for _, lane := range words(s.Paused) {
		must(lane == laneSource || lane == laneRecovery, "paused has %q, want source or recovery", lane)
	}
	for _, arn := range s.senders() {
		must(serviceOf(arn) != nil, "senders has %q, want the ARN of an SNS topic, an EventBridge rule or an S3 bucket", arn)
	}
	must(s.policyBytes() <= maxPolicyBytes, "senders make a queue policy of %d bytes, but SQS allows %d", s.policyBytes(), maxPolicyBytes)
	for name, list := range map[string]string{"environment": s.Environment, "tags": s.Tags} {
		for one := range strings.SplitSeq(list, ",") {
			must(list == "" || pair.MatchString(strings.TrimSpace(one)), "%s has %q, want name=value", name, one)
		}
	}
	must(s.VPC == "" || vpcID.MatchString(s.VPC), "vpc is %q, want the id of a VPC, such as vpc-0a1b2c3d", s.VPC)
	must((s.VPC == "") == (s.Subnets == ""), "vpc is %q and subnets are %q, want both or neither", s.VPC, s.Subnets)
	for _, subnet := range words(s.Subnets) {
		must(subnetID.MatchString(subnet), "subnets has %q, want the id of a subnet, such as subnet-0a1b2c3d", subnet)
	}
	must(len(words(s.Subnets)) <= maxSubnets, "subnets are %d, but Lambda allows %d", len(words(s.Subnets)), maxSubnets)
	must(s.Boundary == "" || policyARN.MatchString(s.Boundary), "permissions boundary is %q, which is no ARN of an IAM policy", s.Boundary)
	must(s.AlarmTopicARN == "" || topicARN.MatchString(s.AlarmTopicARN), "alarm topic is %q, which is no ARN of an SNS topic", s.AlarmTopicARN)
	return errors.Join(errs...)
}

// providerSetting is a setting about the provider of reminders.
type providerSetting struct {
	name string
	set  bool
	of   []string // the providers that it is for
}

func (s Settings) providerSettings() []providerSetting {
	r := s.Reminders
	http, ses := []string{reminder.ProviderHTTP}, []string{reminder.ProviderSES}
	return []providerSetting{
		{"providerTimeout", r.Timeout != 0, []string{reminder.ProviderHTTP, reminder.ProviderSES}},
		{"providerUrl", r.URL != "", http},
		{"providerSecretArn", r.SecretARN != "", http},
		{"providerDeduplicates", r.Abilities.Deduplicates, http},
		{"providerLooksUp", r.Abilities.LooksUp, http},
		{"providerKeyWindow", r.Abilities.KeyWindow != 0, http},
		{"providerSettleTime", r.Abilities.SettleTime != 0, http},
		{"providerBareYes", r.BareYes != "", http},
		{"sesFrom", r.SESFrom != "", ses},
		{"sesConfigurationSet", r.SESSet != "", ses},
		{"sesSandbox", r.SESSandbox, ses},
		{"subscriptionIgnore", r.Ignore != "", []string{reminder.ProviderHTTP, reminder.ProviderSES}},
	}
}

// checkRegion checks what must lie in the region that is deployed to, which may be unknown.
func (s Settings) checkRegion(region string) error {
	var errs []error
	must := func(arn, format string) {
		if parts := strings.Split(arn, ":"); region != "" && len(parts) > 3 && parts[3] != region {
			errs = append(errs, fmt.Errorf(format, arn, region))
		}
	}
	must(s.AlarmTopicARN, "alarmTopicArn is %q, but alarms of %[2]s reach topics of %[2]s only")
	must(s.Reminders.SecretARN, "providerSecretArn is %q, but the worker reads secrets of %s only")
	for _, arn := range s.senders() {
		if strings.Contains(arn, ":events:") { // SNS delivers to other regions, and a bucket's ARN names none
			must(arn, "senders has %q, but a rule reaches queues of its own region only, which is not %s: send to an event bus of that region, and name its rule")
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("settings:\n%w", errors.Join(errs...))
}

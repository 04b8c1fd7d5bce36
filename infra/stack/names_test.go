package stack

import (
	"strings"
	"testing"
)

// longestRegion is a region with as long a name as any of AWS's.
const longestRegion = "ap-northeast-1"

// nameLimits are the properties that name a resource, and how long AWS allows that name to be.
var nameLimits = map[string]struct {
	property string
	limit    int
}{
	"AWS::IAM::Role":                {"RoleName", 64},
	"AWS::Lambda::Function":         {"FunctionName", 64},
	"AWS::Events::Rule":             {"Name", 64},
	"AWS::Scheduler::ScheduleGroup": {"Name", 64},
	"AWS::SQS::Queue":               {"QueueName", 80},
	"AWS::IAM::ManagedPolicy":       {"ManagedPolicyName", 128},
}

// The names that are made of the stack's name are within AWS's limits in every region, also for the longest
// allowed name of a stack.
func TestTheLongestNameFits(t *testing.T) {
	p := defaults()
	p.Name, p.CheckedDeployment = strings.Repeat("n", 39), true
	tm := templateOf(t, p)
	longest := 0
	for kind, named := range nameLimits {
		for _, id := range tm.of(kind) {
			name := tm.text(tm.Resources[id].Properties[named.property])
			name = strings.ReplaceAll(name, testRegion, longestRegion)
			if len(name) > named.limit {
				t.Errorf("%s %s has a name of %d characters, and AWS allows %d: %s", kind, id, len(name), named.limit, name)
			}
			longest = max(longest, len(name))
		}
	}
	if longest < 64 {
		t.Errorf("the longest name has %d characters, so a longer name of a stack is possible", longest)
	}
	p.Name += "n"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "at most 39 letters") {
		t.Errorf("a name of 40 letters: %v", err)
	}
}

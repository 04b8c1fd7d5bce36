package stack

import (
	"strings"
	"testing"
)

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

// Whatever Validate accepts is small enough for Lambda, in both functions and in every region.
func TestTheLongestEnvironmentFits(t *testing.T) {
	p := defaults()
	p.Name = strings.Repeat("n", 39)
	tm := templateOf(t, p)
	// far is the part that a region adds to what the template has in testRegion, in the partition aws.
	far := strings.NewReplacer(testRegion, longestRegion, "arn:aws:", "arn:aws-us-gov:", ".amazonaws.com/", ".amazonaws.com.cn/")
	for _, function := range []string{"worker", "redrive"} {
		variables := tm.resolve(tm.named(t, "AWS::Lambda::Function", "FunctionName", p.Name+"-"+function)["Environment"]).(map[string]any)["Variables"].(map[string]any)
		size := 0
		for name, value := range variables {
			text := value.(string)
			if strings.HasPrefix(text, "<SchedulerRole") {
				text = "arn:aws:iam::" + testAccount + ":role/" + p.Name + "-scheduler-" + testRegion
			}
			size += len(name) + len(far.Replace(text))
		}
		own := 0
		for name, value := range p.withDefaults().environments()[function] {
			own += len(name) + len(value)
		}
		if own != size {
			t.Errorf("%s: Validate counts %d bytes, and the template has %d", function, own, size)
		}
	}
	// The larger of both decides.
	p.Environment = map[string]string{"FILL": ""}
	size := 0
	for name, value := range p.withDefaults().environments()["redrive"] {
		size += len(name) + len(value)
	}
	p.Environment["FILL"] = strings.Repeat("x", maxEnvironmentBytes-size)
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	p.Environment["FILL"] += "x"
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "the redrive's environment has up to 4097 bytes by the region, but Lambda allows 4096") {
		t.Errorf("one byte more: %v", err)
	}
}

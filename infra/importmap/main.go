// Command importmap prints the mapping by which "cdk import" takes the queues, the tables, the key and the schedules that an earlier
// stack left behind into a new stack of the same name.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "importmap:", err)
		os.Exit(1)
	}
}

const usage = "go run ./infra/importmap -account ID -region REGION [-key KEY-ID] cdk.out/STACK.template.json > import.json"

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("importmap", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(flags.Output(), "usage:", usage); flags.PrintDefaults() }
	account := flags.String("account", "", "the account's id")
	region := flags.String("region", "", "the region")
	key := flags.String("key", "", "the id of the KMS key, if the stack has one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *account == "" || *region == "" || flags.NArg() != 1 {
		return errors.New("want -account, -region and a template: " + usage)
	}
	raw, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	mapping, err := mappingOf(raw, *account, *region, *key)
	if err != nil {
		return fmt.Errorf("%s: %w", flags.Arg(0), err)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(mapping)
}

// mappingOf identifies everything in the template that outlives its stack, by logical id.
func mappingOf(template []byte, account, region, key string) (map[string]map[string]string, error) {
	var t struct {
		Resources map[string]struct {
			Type, DeletionPolicy string
			Properties           struct {
				QueueName, TableName, Name string
				RoleName                   any
			}
		}
	}
	if err := json.Unmarshal(template, &t); err != nil {
		return nil, err
	}
	mapping := map[string]map[string]string{}
	for id, r := range t.Resources {
		if r.DeletionPolicy != "Retain" && r.DeletionPolicy != "RetainExceptOnCreate" {
			continue
		}
		switch r.Type {
		case "AWS::SQS::Queue":
			domain := "amazonaws.com"
			if len(region) > 3 && region[:3] == "cn-" {
				domain += ".cn"
			}
			mapping[id] = map[string]string{"QueueUrl": "https://sqs." + region + "." + domain + "/" + account + "/" + r.Properties.QueueName}
		case "AWS::DynamoDB::Table":
			mapping[id] = map[string]string{"TableName": r.Properties.TableName}
		case "AWS::Scheduler::ScheduleGroup":
			mapping[id] = map[string]string{"Name": r.Properties.Name}
		case "AWS::IAM::Role":
			mapping[id] = map[string]string{"RoleName": text(r.Properties.RoleName, region)}
		case "AWS::KMS::Key":
			if key == "" {
				return nil, errors.New("the stack has a key of its own: name its id with -key; " +
					"aws dynamodb describe-table --table-name STACK-ledger --query Table.SSEDescription tells it")
			}
			mapping[id] = map[string]string{"KeyId": key}
		default:
			return nil, fmt.Errorf("%s is a %s that outlives its stack, and this command does not know how to name it", id, r.Type)
		}
	}
	if len(mapping) == 0 {
		return nil, errors.New("nothing in it outlives the stack")
	}
	return mapping, nil
}

// text is a value of a template: a string, or strings joined with the region.
func text(value any, region string) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		var all string
		for _, part := range v {
			all += text(part, region)
		}
		return all
	case map[string]any:
		if v["Ref"] == "AWS::Region" {
			return region
		}
		return text(v["Fn::Join"], region) // of an empty separator and a list
	}
	return ""
}

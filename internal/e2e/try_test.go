package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json"

	"acklast/internal/awsclient"
	"acklast/internal/local"
)

// A new user runs "acklast local" and types the printed commands: a hold expires, a reminder is sent.
func TestTheCommandsThatLocalPrints(t *testing.T) {
	if deployed() || os.Getenv(envData) != "" {
		t.Skip("runs an AWS of its own")
	}
	t.Parallel()
	root, ok := local.FindModule(".")
	if !ok {
		t.Fatal("not in a module with functions")
	}
	bin, err := tools()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(bin) // the commands name bin/acklast and bin/desk
	stack := fmt.Sprintf("try-%08x", rand.Uint32())
	printed := startLocal(t, dir, root, stack)

	exports := regexp.MustCompile(`(?m)^  export (.*)$`).FindAllStringSubmatch(printed, -1)
	if len(exports) != 2 {
		t.Fatalf("exports %q in:\n%s", exports, printed)
	}
	user := &terminal{t: t, dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "AWS_CONFIG_FILE=" + os.DevNull}}
	for _, e := range exports {
		user.env = append(user.env, strings.Fields(e[1])...)
	}
	run := 0
	for line := range strings.Lines(printed) {
		command, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		switch {
		case !ok || strings.HasPrefix(command, "#") || strings.HasPrefix(command, "export "):
		case strings.HasPrefix(command, "aws "): // not installed everywhere
			user.aws(command)
			run++
		default:
			// The result may take a moment: a user would look again.
			var out string
			var err error
			wanted := wants(command)
			for end := time.Now().Add(60 * time.Second); ; time.Sleep(200 * time.Millisecond) {
				out, err = user.run(command)
				if err == nil && strings.Contains(out, wanted) || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", command, err, out)
			}
			if !strings.Contains(out, wanted) {
				t.Errorf("%s does not say %q:\n%s", command, wanted, out)
			}
			run++
		}
	}
	if run < 10 {
		t.Errorf("only %d commands were printed:\n%s", run, printed)
	}
}

// wants is text that the command has to print in the end.
func wants(command string) string {
	switch {
	case strings.HasPrefix(command, "bin/desk hold"):
		return `"state": "held"`
	case strings.HasPrefix(command, "bin/acklast job r-1"):
		return "expired" // the reservation's own state, which only its kind can read
	case strings.HasPrefix(command, "bin/acklast job renewal-1"):
		return "is done (sent)"
	case strings.HasPrefix(command, "curl"):
		return "customer-1"
	}
	return ""
}

// startLocal runs "acklast local" until the test ends and returns what it prints.
func startLocal(t *testing.T, dir, root, stack string) (printed string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(dir, "bin", "acklast"), "local", "--port", "0", "--stack", stack, "--module", root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	logs := &lockedBuffer{}
	cmd.Stderr = logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	})
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil { // Ctrl-C
			t.Error(err)
		}
		for line := range lines { // the rest of its output
			_, _ = fmt.Fprintln(logs, line)
		}
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("acklast local: %v", err)
		}
		if t.Failed() {
			t.Logf("acklast local said:\n%s", logs)
		}
	})
	for line := range lines {
		printed += line + "\n"
		if strings.Contains(line, "/messages") { // the last command
			return printed
		}
	}
	t.Fatalf("acklast local ended:\n%s%s", printed, logs)
	return ""
}

// terminal is the user's other terminal.
type terminal struct {
	t   *testing.T
	dir string
	env []string
}

func (u *terminal) run(command string) (string, error) {
	cmd := exec.CommandContext(u.t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = u.dir, u.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u *terminal) variable(name string) string {
	for _, v := range u.env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	u.t.Fatalf("%s was not exported", name)
	return ""
}

var option = regexp.MustCompile(`--(table-name|item|key) ('[^']*'|\S+)`)

// aws replaces the AWS CLI: it reads or puts the item that the command names.
func (u *terminal) aws(command string) {
	u.t.Helper()
	options := map[string]string{}
	for _, o := range option.FindAllStringSubmatch(command, -1) {
		options[o[1]] = strings.Trim(o[2], "'")
	}
	table := strings.Replace(options["table-name"], "$ACKLAST_STACK", u.variable("ACKLAST_STACK"), 1)
	cfg, err := local.ConfigAt(u.t.Context(), u.variable("AWS_ENDPOINT_URL"))
	if err != nil {
		u.t.Fatal(err)
	}
	db := awsclient.DynamoDB(cfg)
	switch {
	case strings.Contains(command, " put-item "):
		_, err = db.PutItem(u.t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: u.item(options["item"])})
	case strings.Contains(command, " get-item "):
		var got *dynamodb.GetItemOutput
		got, err = db.GetItem(u.t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: u.item(options["key"])})
		if err == nil && got.Item == nil {
			u.t.Errorf("%s finds nothing", command)
		}
	default:
		u.t.Errorf("unknown: %s", command)
	}
	if err != nil {
		u.t.Errorf("%s: %v", command, err)
	}
}

// item reads an item of strings and numbers as the AWS CLI writes it.
func (u *terminal) item(text string) map[string]types.AttributeValue {
	u.t.Helper()
	var values map[string]struct{ S, N *string }
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		u.t.Fatalf("%v in %s", err, text)
	}
	item := map[string]types.AttributeValue{}
	for name, v := range values {
		if v.S != nil {
			item[name] = &types.AttributeValueMemberS{Value: *v.S}
		} else {
			item[name] = &types.AttributeValueMemberN{Value: *v.N}
		}
	}
	return item
}

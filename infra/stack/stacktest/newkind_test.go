package stacktest_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/infra/stack/stacktest"
)

// root is this repository.
const root = "../../.."

// copied is a copy of the repository's files, without what was built.
func copied(t *testing.T) string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	dir := t.TempDir()
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names, []byte{0}), []byte{0}) {
		write(t, dir, string(name), read(t, filepath.Join(root, string(name))))
	}
	return dir
}

// read reads a file; nil stands for one that was deleted and is still listed.
func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

func write(t *testing.T, dir, name string, text []byte) {
	t.Helper()
	if text == nil {
		return
	}
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// register adds a kind's package to the list of kinds: its import, and one line.
func register(t *testing.T, dir, name string) (lines int) {
	t.Helper()
	const list = "internal/kinds/kinds.go"
	before := string(read(t, filepath.Join(dir, list)))
	_, module, _ := strings.Cut(string(read(t, filepath.Join(dir, "go.mod"))), "module ")
	module, _, _ = strings.Cut(module, "\n") // it may be called otherwise here
	after := strings.Replace(before, "import (\n", "import (\n\t\""+module+"/internal/kinds/"+name+"\"\n", 1)
	after = strings.Replace(after, "return []acklast.Kind{\n", "return []acklast.Kind{\n\t\t"+name+".Kind(),\n", 1)
	write(t, dir, list, []byte(after))
	return strings.Count(after, "\n") - strings.Count(before, "\n")
}

// A new kind, with a table of its own, is one package and one line in the list (and its import). Its job
// runs by the real worker, and nothing else had to be touched.
func TestANewKindIsOnePackageAndOneLine(t *testing.T) {
	dir := copied(t)
	for _, name := range []string{"newkind.go", "sample.json"} {
		write(t, dir, "internal/kinds/newkind/"+name, read(t, filepath.Join(root, "docs/newkind", name)))
	}
	if lines := register(t, dir, "newkind"); lines != 2 {
		t.Fatalf("registering took %d lines, want an import and a line", lines)
	}

	s := stacktest.Start(t, dir)
	table := s.Client().Table("vouchers")
	if _, err := s.Client().DynamoDB().PutItem(t.Context(), &dynamodb.PutItemInput{
		TableName: &table, Item: map[string]types.AttributeValue{
			"voucher_id": &types.AttributeValueMemberS{Value: "v-1"}, "state": &types.AttributeValueMemberS{Value: "issued"},
		},
	}); err != nil {
		t.Fatalf("the kind's table: %v", err)
	}
	s.Send(acklast.Message{Kind: "voucher.expire", Payload: map[string]string{"voucherId": "v-1"}})
	if j := s.Wait("voucher.expire/v-1"); j.Status != "done" || j.Outcome != "expired" {
		t.Errorf("the voucher's job ended as %+v", j)
	}
	if touched := differing(t, dir); !slices.Equal(touched, []string{"internal/kinds/kinds.go", "internal/kinds/newkind/newkind.go", "internal/kinds/newkind/sample.json"}) {
		t.Errorf("touched were %q", touched)
	}
}

// differing are the files of the copy that are not the repository's.
func differing(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if !bytes.Equal(read(t, path), read(t, filepath.Join(root, name))) {
			files = append(files, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

package acklast_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// aliases are the exported names that stand for a type of an internal package, for each package that other
// modules import. Each is documented with all its fields where it is declared.
var aliases = map[string][]string{
	".":           {"Attempts", "Description", "Fact", "Grant", "LatePolicy", "Metric", "Sample", "Table", "Unit", "Variable"},
	"infra/stack": {"Infra", "Numbers", "RedriveNumbers"},
	// A package for tests of other modules. It has no alias.
	"infra/stack/stacktest": {},
}

// listed is the output of go list for a package.
type listed struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
	Deps                    []string
	Module                  *struct{ Path string }
}

func goList(t *testing.T, args ...string) []listed {
	t.Helper()
	var errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Export,Dir,GoFiles,Deps,Module"}, args...)...)
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, errOut.String())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// The face does not import packages that only this machine or other parts need.
func TestTheFaceNeedsLittle(t *testing.T) {
	root := goList(t, ".")[0]
	for _, dep := range root.Deps {
		own, ours := strings.CutPrefix(dep, root.Module.Path+"/")
		switch {
		case ours && (own == "internal/kinds" || strings.HasPrefix(own, "internal/kinds/")),
			ours && (strings.HasPrefix(own, "internal/local") || strings.HasPrefix(own, "internal/demo")),
			ours && !strings.HasPrefix(own, "internal/"),
			dep == "testing", strings.HasPrefix(dep, "testing/"),
			strings.Contains(dep, "sivchari/kumo"), strings.Contains(dep, "awscdk"), strings.Contains(dep, "aws-cdk-go"),
			strings.Contains(dep, "spf13/cobra"), strings.Contains(dep, "truora/minidyn"):
			t.Errorf("the face needs %s", dep)
		}
	}
	if !slices.Contains(root.Deps, root.Module.Path+"/internal/worker") {
		t.Error("go list names no engine: this test looks at the wrong package")
	}
}

// Another module cannot name a type of an internal package. So no exported name may need one, except the
// aliases, whose documentation is as complete as the internal type's.
func TestNoExportedNameNeedsAnInternalType(t *testing.T) {
	all := faces(t)
	f := &finder{allowed: map[string]bool{}, seen: map[types.Type]bool{}}
	for _, p := range all {
		for _, name := range aliases[p.own] {
			if o, ok := p.types.Scope().Lookup(name).(*types.TypeName); !ok || !o.IsAlias() {
				t.Errorf("%s of %s is listed as an alias and is none", name, p.own)
			} else if n, ok := types.Unalias(o.Type()).(*types.Named); ok {
				f.allowed[path(n)] = true
			}
		}
	}
	for _, p := range all {
		f.module = p.Module.Path
		for _, name := range p.types.Scope().Names() {
			if o := p.types.Scope().Lookup(name); o.Exported() {
				f.typ(p.ImportPath+"."+name, o.Type())
			}
		}
	}
	for _, found := range f.found {
		t.Error(found)
	}
	if len(f.seen) < 50 {
		t.Errorf("only %d types were looked at", len(f.seen))
	}
}

// face is a package that other modules import.
type face struct {
	listed
	// own is its path in this module.
	own   string
	types *types.Package
}

// faces loads the packages as the compiler sees them.
func faces(t *testing.T) []face {
	t.Helper()
	var patterns []string
	for _, own := range slices.Sorted(maps.Keys(aliases)) {
		patterns = append(patterns, "./"+own)
	}
	exports := map[string]string{}
	for _, p := range goList(t, append([]string{"-export", "-deps"}, patterns...)...) {
		exports[p.ImportPath] = p.Export
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []face
	for _, p := range goList(t, patterns...) {
		pkg, err := imports.Import(p.ImportPath)
		if err != nil {
			t.Fatal(err)
		}
		own := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
		all = append(all, face{p, cmp.Or(own, "."), pkg})
	}
	return all
}

// path names a type by its package and name.
func path(n *types.Named) string {
	if n.Obj().Pkg() == nil {
		return n.Obj().Name()
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

// finder looks for internal types that another module can reach through an exported name.
type finder struct {
	module  string
	allowed map[string]bool
	seen    map[types.Type]bool
	found   []string
}

func (f *finder) typ(where string, t types.Type) {
	t = types.Unalias(t)
	if f.seen[t] {
		return
	}
	f.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			f.typ(where, arg)
		}
		if t.Obj().Pkg() == nil || !strings.HasPrefix(t.Obj().Pkg().Path()+"/", f.module+"/") {
			return // a type of another module or of the language
		}
		if strings.HasPrefix(t.Obj().Pkg().Path(), f.module+"/internal/") && !f.allowed[path(t.Origin())] {
			f.found = append(f.found, fmt.Sprintf("%s needs %s, which other modules cannot name", where, path(t.Origin())))
			return
		}
		f.typ(where, t.Underlying())
		for m := range t.Methods() {
			if m.Exported() {
				f.typ(where+"."+m.Name(), m.Type())
			}
		}
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() {
				f.typ(where+"."+field.Name(), field.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				f.typ(where+"."+m.Name(), m.Type())
			}
		}
	case *types.Signature:
		f.typ(where, t.Params())
		f.typ(where, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			f.typ(where, v.Type())
		}
	case *types.Pointer:
		f.typ(where, t.Elem())
	case *types.Slice:
		f.typ(where, t.Elem())
	case *types.Array:
		f.typ(where, t.Elem())
	case *types.Chan:
		f.typ(where, t.Elem())
	case *types.Map:
		f.typ(where, t.Key())
		f.typ(where, t.Elem())
	}
}

// The documentation of an alias names every field of its type, since its reader cannot open the internal
// package's. Every other exported name has a comment too.
func TestTheFaceIsDocumented(t *testing.T) {
	all := faces(t)
	for _, p := range all {
		declared := map[string]string{} // comments by name
		for _, file := range p.GoFiles {
			maps.Copy(declared, comments(t, filepath.Join(p.Dir, file)))
		}
		for name, comment := range declared {
			if strings.TrimSpace(comment) == "" {
				t.Errorf("%s of %s has no comment", name, p.own)
			}
		}
		fields := 0
		for _, name := range aliases[p.own] {
			s, ok := p.types.Scope().Lookup(name).Type().Underlying().(*types.Struct)
			if !ok {
				continue
			}
			for field := range s.Fields() {
				fields++
				if field.Exported() && !regexp.MustCompile(`\b`+field.Name()+`\b`).MatchString(declared[name]) {
					t.Errorf("the comment of the alias %s of %s says nothing of its field %s", name, p.own, field.Name())
				}
			}
		}
		if fields == 0 && len(aliases[p.own]) > 0 {
			t.Errorf("no field of an alias of %s was found", p.own)
		}
	}
}

// comments returns the comments of a file's exported types, functions and values, by their names.
func comments(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) && !standard(d.Name.Name) {
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d) + "." + name
				}
				all[name] = d.Doc.Text()
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						all[s.Name.Name] = d.Doc.Text() + s.Doc.Text()
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() {
							all[n.Name] = d.Doc.Text() + s.Doc.Text()
						}
					}
				}
			}
		}
	}
	return all
}

// standard says whether a method's meaning is known to every Go programmer.
func standard(name string) bool { return name == "Error" || name == "Unwrap" }

func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

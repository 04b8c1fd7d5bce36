package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"

	"acklast/infra/build"
)

// Code is the code of a function: a Path, or a Module and a Package of it.
type Code struct {
	// Path is a folder with a built bootstrap for arm64, or a zip file of one.
	Path string
	// Module is a folder of a Go module, and Package a main package in it, such as "./functions/worker".
	// New builds it.
	Module, Package string
}

// BuiltAt is code that was built before, in a folder or a zip file.
func BuiltAt(path string) Code { return Code{Path: path} }

// GoPackage is code that New builds: a main package of the module in the folder.
func GoPackage(module, pkg string) Code { return Code{Module: module, Package: pkg} }

// with calls use with the code as an asset. What it builds is gone afterwards: the CDK has its copy then.
func (c Code) with(use func(awslambda.Code)) error {
	path := c.Path
	switch {
	case c.Path != "" && c.Module == "" && c.Package == "":
		info, err := os.Stat(path)
		if err == nil && info.IsDir() {
			_, err = os.Stat(filepath.Join(path, "bootstrap"))
		}
		if err != nil {
			return fmt.Errorf("it is not built: %w", err)
		}
	case c.Path == "" && c.Module != "" && c.Package != "":
		dir, err := os.MkdirTemp("", "acklast-function-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if err := build.Function(context.Background(), c.Module, c.Package, dir); err != nil {
			return err
		}
		path = dir
	default:
		return errors.New("its code is neither a Path nor a Module with a Package")
	}
	use(awslambda.Code_FromAsset(&path, nil))
	return nil
}

package stack

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"

	"acklast"
	"acklast/internal/topology"
)

// kindTables are the tables of the kinds, in order. Kinds may share a table that they describe alike.
func (p Props) kindTables() ([]acklast.Table, error) {
	var all []acklast.Table
	var errs []error
	taken := map[string]string{}
	for _, own := range p.names().Tables() {
		taken[strings.TrimPrefix(own.Name, p.Name+"-")] = "the system"
	}
	byName := map[string]acklast.Table{}
	for _, k := range acklast.Describe(p.Kinds...) {
		for _, t := range k.Tables {
			switch other, known := byName[t.Name]; {
			case taken[t.Name] == "the system" || known && other != t:
				errs = append(errs, fmt.Errorf("kind %s has a table %q, which %s has with other keys", k.Name, t.Name, taken[t.Name]))
			case !known:
				byName[t.Name], taken[t.Name] = t, "kind "+k.Name
				all = append(all, t)
			}
		}
	}
	return all, errors.Join(errs...)
}

// kindGrants are the rights that the kinds need for the worker.
func (p Props) kindGrants() ([]acklast.Grant, error) {
	var all []acklast.Grant
	var errs []error
	environment := p.workerEnvironment(topology.QueueURLs{})
	maps.Copy(environment, p.Environment)
	for _, k := range p.Kinds {
		d := acklast.Describe(k)[0]
		grants, err := k.Grants(func(name string) string { return environment[name] })
		if err != nil {
			errs = append(errs, fmt.Errorf("kind %s: %w", d.Name, err))
		}
		own := map[string]bool{}
		for _, t := range d.Tables {
			own[t.Name] = true
		}
		for _, g := range grants {
			switch {
			case len(g.Actions) == 0 || (g.Table == "") == (g.Resource == ""):
				errs = append(errs, fmt.Errorf("kind %s: a grant has actions %q, table %q and resource %q, want actions on one of the two",
					d.Name, g.Actions, g.Table, g.Resource))
			case g.Table != "" && !own[g.Table]:
				errs = append(errs, fmt.Errorf("kind %s: a grant names the table %q, which is none of the kind's own", d.Name, g.Table))
			default:
				all = append(all, g)
			}
		}
	}
	return all, errors.Join(errs...)
}

// grantKinds gives the worker the rights of its kinds.
func (st *Stack) grantKinds(role awsiam.IRole) {
	grants, _ := st.props.kindGrants() // Validate has seen the error.
	stack := st.stack
	fill := strings.NewReplacer("{partition}", *stack.Partition(), "{region}", *stack.Region(), "{account}", *stack.Account())
	for _, g := range grants {
		resource := fill.Replace(g.Resource)
		if g.Table != "" {
			resource = *st.tables.kinds[g.Table].TableArn()
		}
		allow(role, []*string{&resource}, g.Actions...)
	}
}

// readActions are the rights that a kind's explanation of its own records needs.
var readActions = []string{"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"}

// grantExplanations lets the redrive function read the tables of the kinds, as far as the worker may read
// them. It can write none.
func (st *Stack) grantExplanations(role awsiam.IRole) {
	grants, _ := st.props.kindGrants() // Validate has seen the error.
	for _, g := range grants {
		if g.Table == "" {
			continue
		}
		for _, action := range g.Actions {
			if slices.Contains(readActions, action) {
				allow(role, []*string{st.tables.kinds[g.Table].TableArn()}, action)
			}
		}
	}
}

// tableOf is a kind's table as the topology describes tables.
func tableOf(names topology.Names, t acklast.Table) topology.Table {
	return topology.Table{Name: names.Table(t.Name), PartitionKey: t.PartitionKey, SortKey: t.SortKey, TTL: t.TTL}
}

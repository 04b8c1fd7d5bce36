package kinds

import (
	"slices"

	"acklast"
)

// Registered says whether the list has all these kinds. What plays with the sample kinds asks, since a stack of yours
// may do without them.
func Registered(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(acklast.Describe(All()...), func(k acklast.Description) bool { return k.Name == name })
	})
}

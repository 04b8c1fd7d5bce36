// Package kinds lists the kinds of job of this repository: the one place where a kind is registered.
package kinds

import (
	"acklast"
	"acklast/internal/kinds/reminder"
	"acklast/internal/kinds/reservation"
)

// All returns every kind. A new kind is one line here.
func All() []acklast.Kind {
	return []acklast.Kind{
		reservation.Kind(),
		reminder.Kind(),
	}
}

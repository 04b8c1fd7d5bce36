package dynamo_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/dynamo"
	"acklast/internal/ledger"
	"acklast/internal/local/faults"
)

// crowd are the parts of jobs 0 to n-1, each with its own reservation, and the counter that they share.
type crowd struct {
	*bench
	parts []dynamo.Part
	asked [][]int // the calls of shared
}

func newCrowd(b *bench, n int) *crowd {
	c := &crowd{bench: b}
	for i := range n {
		c.parts = append(c.parts, dynamo.Part{Completion: c.completion(i, fmt.Sprint("t", i)), Own: []types.TransactWriteItem{b.reserve(fmt.Sprint("r-", i))}})
	}
	return c
}

func (c *crowd) key(i int) string { return fmt.Sprintf("reservation.expire/r-%d/hold-1", i) }

func (c *crowd) completion(i int, token string) ledger.Completion {
	d := delivery(token)
	d.Key, d.Subject = c.key(i), fmt.Sprint("r-", i)
	return rules.Complete(d, ledger.Done, "released", now)
}

// shared adds the number of active parts to a counter, in one item.
func (c *crowd) shared(most string) func([]int) []types.TransactWriteItem {
	return func(active []int) []types.TransactWriteItem {
		it := c.count("room-7", most)
		u := *it.Update
		u.ExpressionAttributeValues = item{":zero": num("0"), ":one": num(strconv.Itoa(len(active))), ":most": num(most)}
		c.asked = append(c.asked, slices.Clone(active))
		return []types.TransactWriteItem{{Update: &u}}
	}
}

func (c *crowd) commit(most string) []error {
	c.proxy.Reset()
	return c.store.CommitTogether(c.Context(), c.parts, c.shared(most))
}

func (c *crowd) transactions() int { return c.proxy.Calls()["TransactWriteItems"] }

func (c *crowd) wantErrors(errs []error, want ...int) {
	c.Helper()
	for i, err := range errs {
		if got := err != nil; got != slices.Contains(want, i) {
			c.Errorf("part %d: %v", i, err)
		}
	}
}

func (c *crowd) wantCounted(want string) {
	c.Helper()
	if got := c.counted("room-7"); got != want {
		c.Errorf("counted %s, want %s", got, want)
	}
}

func testTogether(b *bench) {
	c := newCrowd(b, 10)
	c.wantErrors(c.commit("100"))
	if n := c.transactions(); n != 1 {
		c.Errorf("%d transactions, want 1", n)
	}
	c.wantCounted("10")
	for i := range 10 {
		if e, err := c.store.Get(c.Context(), c.key(i)); err != nil || e.Status != ledger.Done || e.Owner != fmt.Sprint("t", i) {
			c.Errorf("entry %d is %s of %q, %v", i, e.Status, e.Owner, err)
		}
	}
}

// A refused job is taken out with its own reason, and the others commit.
func testTogetherRefused(b *bench) {
	c := newCrowd(b, 6)
	if err := c.store.Commit(c.Context(), c.completion(1, "other")); err != nil { // final already
		c.Fatal(err)
	}
	for _, taken := range []string{"r-3", "r-4"} { // its own item refuses
		if err := c.store.Transact(c.Context(), c.reserve(taken)); err != nil {
			c.Fatal(err)
		}
	}
	if err := c.store.Commit(c.Context(), c.completion(4, "other")); err != nil { // both refuse
		c.Fatal(err)
	}
	errs := c.commit("100")
	c.wantErrors(errs, 1, 3, 4)
	for _, i := range []int{1, 4} {
		var refused *ledger.RefusedError
		if !errors.As(errs[i], &refused) || refused.Entry.Owner != "other" {
			c.Errorf("part %d: %v, want its entry's refusal", i, errs[i])
		}
	}
	var own *dynamo.ItemError
	if !errors.As(errs[3], &own) || own.Index != 0 {
		c.Errorf("part 3: %v, want its own item's refusal", errs[3])
	}
	c.wantCounted("3")
	want := 2
	if !c.engine.allReasons { // one refusal a transaction
		want = 4
	}
	if n := c.transactions(); n != want {
		c.Errorf("%d transactions, want %d", n, want)
	}
}

// A refusal by a shared item refuses all jobs, unless a job was refused by itself.
func testTogetherSharedRefuses(b *bench) {
	c := newCrowd(b, 3)
	if err := c.store.Commit(c.Context(), c.completion(2, "other")); err != nil {
		c.Fatal(err)
	}
	if err := c.store.Transact(c.Context(), c.count("room-7", "100")); err != nil {
		c.Fatal(err)
	}
	errs := c.commit("1") // the counter exists already
	c.wantErrors(errs, 0, 1, 2)
	for _, i := range []int{0, 1} {
		var own *dynamo.ItemError
		if !errors.As(errs[i], &own) || own.Index != 1 {
			c.Errorf("part %d: %v, want the refusal of the item behind its own", i, errs[i])
		}
	}
	var refused *ledger.RefusedError
	if !errors.As(errs[2], &refused) {
		c.Errorf("part 2: %v, want its entry's refusal", errs[2])
	}
	c.wantCounted("1")
}

func testTogetherLostAnswer(b *bench) {
	c := newCrowd(b, 5)
	c.proxy.Reset()
	b.fail("TransactWriteItems", 1, faults.DropAnswer())
	c.wantErrors(c.store.CommitTogether(c.Context(), c.parts, c.shared("100")))
	c.wantCounted("5")
}

// If the reasons have no positions, each job is tried alone and learns its own.
func testTogetherWithoutReasons(b *bench) {
	c := newCrowd(b, 4)
	if err := c.store.Commit(c.Context(), c.completion(2, "other")); err != nil {
		c.Fatal(err)
	}
	for name, fault := range map[string]faults.Fault{
		"no reasons":   faults.CancelTransaction(),
		"not accepted": faults.Error(400, "ValidationException", "Transaction request cannot include multiple operations on one item"),
	} {
		b.fail("TransactWriteItems", 1, fault)
		errs := c.store.CommitTogether(c.Context(), c.parts, c.shared("100"))
		var refused *ledger.RefusedError
		if !errors.As(errs[2], &refused) || refused.Entry.Owner != "other" {
			c.Errorf("%s: part 2: %v, want its entry's refusal", name, errs[2])
		}
		c.wantErrors(errs, 2) // the second time the others find their own commit
	}
	c.wantCounted("3")
}

func testTogetherConflict(b *bench) {
	c := newCrowd(b, 2)
	const none, conflict = "None", "TransactionConflict"
	b.fail("TransactWriteItems", dynamo.GroupTries, faults.CancelTransaction(none, none, none, none, conflict))
	errs := c.store.CommitTogether(c.Context(), c.parts, c.shared("100"))
	for i, err := range errs {
		if !errors.Is(err, ledger.ErrContended) {
			c.Errorf("part %d: %v, want it contended", i, err)
		}
	}
	c.wantErrors(c.commit("100"))
}

func testTogetherUnavailable(b *bench) {
	c := newCrowd(b, 3)
	b.fail("TransactWriteItems", sdkAttempts, faults.Error(500, "InternalServerError", "down"))
	for i, err := range c.store.CommitTogether(c.Context(), c.parts, c.shared("100")) {
		if !errors.Is(err, ledger.ErrUnavailable) {
			c.Errorf("part %d: %v, want it unavailable", i, err)
		}
	}
	if n := c.transactions(); n > sdkAttempts {
		c.Errorf("%d calls, want one call's attempts for all", n)
	}
}

// More jobs than fit into one transaction commit in several, each with its own share of the shared items.
func testTogetherInSeveral(b *bench) {
	c := newCrowd(b, 60)
	c.wantErrors(c.commit("1000"))
	c.wantCounted("60")
	if n := c.transactions(); n != 2 {
		c.Errorf("%d transactions, want 2", n)
	}
}

// A mistake in one part's completion concerns only that part.
func testTogetherWrongPart(b *bench) {
	c := newCrowd(b, 3)
	c.parts[1].Completion.Token = ""
	c.wantErrors(c.commit("100"), 1)
	c.wantCounted("2")
}

package dynamo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/topology"
)

const (
	// dayFormat is the form of the index's partition key, the day of an isolation.
	dayFormat = "2006-01-02"
	// orderFormat begins the index's sort key. It has a fixed width, so that texts sort as times do.
	orderFormat = "2006-01-02T15:04:05.000Z"
)

// isolatedOrder is the index's sort key of an isolated entry: the time, followed by a hash that makes it
// unique. It holds the entry's key only as a hash, because key and kind together may be longer than a sort key.
func isolatedOrder(e ledger.Entry, at time.Time) string {
	sum := sha256.Sum256([]byte(e.Key))
	return at.Format(orderFormat) + "#" + e.Kind + "#" + hex.EncodeToString(sum[:8])
}

// Isolated calls each with the pages of jobs that are isolated and were isolated at or after from and before
// to, in the order of their isolation. Days are UTC. A job whose entry a newer version wrote is among them, by its
// keys alone. The index is eventually consistent: a job that was
// isolated just now may be missing, and one that has just left isolation may still be there. If each returns an
// error, Isolated stops and returns it unchanged.
func (s *Store) Isolated(ctx context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error {
	from, to = from.UTC(), to.UTC()
	for day := from.Truncate(24 * time.Hour); day.Before(to); day = day.AddDate(0, 0, 1) {
		pages := dynamodb.NewQueryPaginator(s.api, &dynamodb.QueryInput{
			TableName: &s.table,
			IndexName: aws.String(topology.IsolatedIndex),
			// A sort key continues after its time, so the range includes from and excludes to.
			KeyConditionExpression: aws.String("#day = :day AND #order BETWEEN :from AND :to"),
			ExpressionAttributeNames: map[string]string{
				"#day": attrIsolatedDay, "#order": attrIsolatedOrder,
			},
			ExpressionAttributeValues: item{
				":day": Text(day.Format(dayFormat)), ":from": Text(from.Format(orderFormat)), ":to": Text(to.Format(orderFormat)),
			},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("query isolated entries: %w", Translate(err))
			}
			jobs := make([]ledger.IsolatedJob, 0, len(page.Items))
			for _, it := range page.Items {
				j, err := readIsolated(it)
				if err != nil {
					return err
				}
				jobs = append(jobs, j)
			}
			if len(jobs) == 0 {
				continue
			}
			if err := each(jobs); err != nil {
				return err
			}
		}
	}
	return nil
}

func readIsolated(it item) (ledger.IsolatedJob, error) {
	r := reader{item: it}
	if format := int(r.number(attrFormat)); format > ledger.Format {
		return readNewer(&r, format)
	}
	j := ledger.IsolatedJob{
		Key:         readText[string](&r, attrKey),
		Subject:     readText[string](&r, attrSubject),
		Kind:        readText[string](&r, attrKind),
		Class:       readText[job.Class](&r, attrLastClass),
		Cause:       readText[job.Cause](&r, attrCause),
		Fingerprint: readText[string](&r, attrFingerprint),
		At:          r.time(attrIsolatedAt),
		MessageID:   readText[string](&r, attrIsolatedMessageID),
		Redrives:    int(r.number(attrRedrives)),
		Decided:     readText[ledger.DecisionKind](&r, attrDecided),
	}
	if r.err != nil {
		return ledger.IsolatedJob{}, fmt.Errorf("read isolated entry: %w", r.err)
	}
	return j, nil
}

// readNewer reads what table and index have as keys: the other attributes of a newer entry may mean something else.
func readNewer(r *reader, format int) (ledger.IsolatedJob, error) {
	j := ledger.IsolatedJob{Key: readText[string](r, attrKey), Subject: readText[string](r, attrSubject), Newer: format}
	at, _, _ := strings.Cut(readText[string](r, attrIsolatedOrder), "#")
	var err error
	if j.At, err = time.Parse(orderFormat, at); r.err == nil {
		r.err = err
	}
	if r.err != nil {
		return ledger.IsolatedJob{}, fmt.Errorf("read isolated entry of format %d: %w", format, r.err)
	}
	return j, nil
}

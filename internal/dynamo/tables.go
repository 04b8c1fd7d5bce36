package dynamo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// TableAPI is what CreateTables needs of the SDK's client.
type TableAPI interface {
	CreateTable(context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
	UpdateTimeToLive(context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateTimeToLiveOutput, error)
}

// tableWait bounds the wait for one table to become active.
const tableWait = time.Minute

// CreateTables creates the engine's tables as topology describes them, and the kinds' own, and waits until they
// are active. It leaves an existing table as it is. It is for engines that run locally and for tests; on AWS
// the CDK app creates the tables.
func CreateTables(ctx context.Context, api TableAPI, names topology.Names, own ...job.Table) error {
	tables := names.Tables()
	for _, t := range own {
		tables = append(tables, topology.Table{Name: names.Table(t.Name), PartitionKey: t.PartitionKey, SortKey: t.SortKey, TTL: t.TTL})
	}
	for _, t := range tables {
		if err := createTable(ctx, api, t); err != nil {
			return fmt.Errorf("create table %s: %w", t.Name, err)
		}
	}
	return nil
}

func createTable(ctx context.Context, api TableAPI, t topology.Table) error {
	in := &dynamodb.CreateTableInput{
		TableName:   &t.Name,
		BillingMode: types.BillingModePayPerRequest,
		KeySchema:   keySchema(t.PartitionKey, t.SortKey),
	}
	if t.Index.Name != "" {
		in.GlobalSecondaryIndexes = []types.GlobalSecondaryIndex{{
			IndexName: &t.Index.Name,
			KeySchema: keySchema(t.Index.PartitionKey, t.Index.SortKey),
			Projection: &types.Projection{
				ProjectionType: types.ProjectionTypeInclude, NonKeyAttributes: t.Index.Include,
			},
		}}
	}
	defined := map[string]bool{"": true}
	for _, name := range []string{t.PartitionKey, t.SortKey, t.Index.PartitionKey, t.Index.SortKey} {
		if !defined[name] {
			defined[name] = true
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{
				AttributeName: &name, AttributeType: types.ScalarAttributeTypeS,
			})
		}
	}
	var exists *types.ResourceInUseException
	if _, err := api.CreateTable(ctx, in); errors.As(err, &exists) {
		return nil
	} else if err != nil {
		return err
	}
	wait := dynamodb.NewTableExistsWaiter(api, func(o *dynamodb.TableExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = 100*time.Millisecond, time.Second
		o.Retryable = creating
	})
	if err := wait.Wait(ctx, &dynamodb.DescribeTableInput{TableName: &t.Name}, tableWait); err != nil {
		return err
	}
	if t.TTL == "" {
		return nil
	}
	_, err := api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               &t.Name,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &t.TTL, Enabled: aws.Bool(true)},
	})
	return err
}

// creating says whether a table is still being created. Some engines report no status at all. So wait until
// "creating" ends, not until "active" begins.
func creating(_ context.Context, _ *dynamodb.DescribeTableInput, out *dynamodb.DescribeTableOutput, err error) (bool, error) {
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &missing):
		return true, nil
	case err != nil:
		return false, err
	}
	return out.Table.TableStatus == types.TableStatusCreating, nil
}

func keySchema(partition, sort string) []types.KeySchemaElement {
	s := []types.KeySchemaElement{{AttributeName: &partition, KeyType: types.KeyTypeHash}}
	if sort != "" {
		s = append(s, types.KeySchemaElement{AttributeName: &sort, KeyType: types.KeyTypeRange})
	}
	return s
}

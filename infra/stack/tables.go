package stack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/jsii-runtime-go"

	"acklast"
	"acklast/internal/kinds"
	"acklast/internal/topology"
)

// tables are the ledger, the operations of the redrive, and the tables of the kinds.
type tables struct {
	ledger, operations                     awsdynamodb.Table
	reservations, resources, subscriptions awsdynamodb.Table
}

func newTables(st *stack) tables {
	names := st.settings.names()
	made := map[string]awsdynamodb.Table{}
	for _, t := range names.Tables() {
		made[t.Name] = newTable(st, t)
	}
	for _, k := range acklast.Describe(kinds.All()...) {
		for _, t := range k.Tables {
			name := names.Table(t.Name)
			made[name] = newTable(st, topology.Table{Name: name, PartitionKey: t.PartitionKey, SortKey: t.SortKey, TTL: t.TTL})
		}
	}
	return tables{
		ledger: made[names.LedgerTable], operations: made[names.OperationsTable],
		reservations: made[names.Table("reservations")], resources: made[names.Table("resources")],
		subscriptions: made[names.Table("subscriptions")],
	}
}

func newTable(st *stack, t topology.Table) awsdynamodb.Table {
	// acklast-ledger is LedgerTable in the template.
	short := strings.TrimPrefix(t.Name, st.settings.Stack+"-")
	id := strings.ToUpper(short[:1]) + short[1:] + "Table"
	props := &awsdynamodb.TableProps{
		TableName:    &t.Name,
		PartitionKey: stringKey(t.PartitionKey),
		SortKey:      stringKey(t.SortKey),
		BillingMode:  awsdynamodb.BillingMode_PAY_PER_REQUEST,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: &st.settings.DeletionProtection,
		RemovalPolicy:      st.removal(),
	}
	if t.TTL != "" {
		props.TimeToLiveAttribute = &t.TTL
	}
	if st.key != nil {
		props.Encryption, props.EncryptionKey = awsdynamodb.TableEncryption_CUSTOMER_MANAGED, st.key
	}
	table := awsdynamodb.NewTable(st.scope, &id, props)
	if t.Index.Name != "" {
		table.AddGlobalSecondaryIndex(&awsdynamodb.GlobalSecondaryIndexProps{
			IndexName:        &t.Index.Name,
			PartitionKey:     stringKey(t.Index.PartitionKey),
			SortKey:          stringKey(t.Index.SortKey),
			ProjectionType:   awsdynamodb.ProjectionType_INCLUDE,
			NonKeyAttributes: jsii.Strings(t.Index.Include...),
		})
	}
	return table
}

func stringKey(name string) *awsdynamodb.Attribute {
	if name == "" {
		return nil
	}
	return &awsdynamodb.Attribute{Name: &name, Type: awsdynamodb.AttributeType_STRING}
}

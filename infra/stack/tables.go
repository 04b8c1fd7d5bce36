package stack

import (
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/topology"
)

// tables are the ledger, the operations of the redrive, and the tables of the kinds.
type tables struct {
	ledger, operations awsdynamodb.Table
	// kinds are the kinds' tables by the names in their descriptions, in the order of names.
	kinds map[string]awsdynamodb.Table
	names []string
	// nameOf are the tables' physical names.
	nameOf map[awsdynamodb.Table]string
}

func newTables(st *Stack) tables {
	names := st.props.names()
	made := map[string]awsdynamodb.Table{}
	for _, t := range names.Tables() {
		made[t.Name] = newTable(st, t)
	}
	all := tables{
		ledger: made[names.LedgerTable], operations: made[names.OperationsTable],
		kinds: map[string]awsdynamodb.Table{}, nameOf: map[awsdynamodb.Table]string{},
	}
	for name, table := range made {
		all.nameOf[table] = name
	}
	own, _ := st.props.kindTables() // Validate has seen the error.
	for _, t := range own {
		all.kinds[t.Name] = newTable(st, tableOf(names, t))
		all.nameOf[all.kinds[t.Name]] = names.Table(t.Name)
		all.names = append(all.names, t.Name)
	}
	return all
}

// every table there is.
func (t tables) all() []awsdynamodb.Table {
	all := []awsdynamodb.Table{t.ledger, t.operations}
	for _, name := range t.names {
		all = append(all, t.kinds[name])
	}
	return all
}

func newTable(st *Stack, t topology.Table) awsdynamodb.Table {
	// acklast-ledger is LedgerTable in the template.
	short := strings.TrimPrefix(t.Name, st.props.Name+"-")
	id := constructID(short) + "Table"
	props := &awsdynamodb.TableProps{
		TableName:    &t.Name,
		PartitionKey: stringKey(t.PartitionKey),
		SortKey:      stringKey(t.SortKey),
		BillingMode:  awsdynamodb.BillingMode_PAY_PER_REQUEST,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: &st.props.DeletionProtection,
		RemovalPolicy:      st.removal(),
	}
	if t.TTL != "" {
		props.TimeToLiveAttribute = &t.TTL
	}
	if st.props.CustomerKey {
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

// Package acklast runs SQS jobs on AWS Lambda whose effects happen once, and governs their dead-letter
// queue.
//
// Deliveries of a job may repeat; its effect must not. Every job has a key made of business fields and an
// entry under that key in a DynamoDB table, the ledger. An effect commits together with the entry, and a
// delivery is acknowledged only after the commit.
//
// # Define a kind
//
// A kind of job has a [Definition] and a [Runner]. The definition says what a job of the kind is: its name,
// its payload as a Go struct, its key, its tables and what the worker may do with them. [Define] joins the
// definition with the constructor of the runner, which makes one attempt at a job.
//
// # Commit
//
// An effect in DynamoDB is a [Job.Commit]: your own items, each with a condition, and the job's entry are
// written in one transaction or not at all. When a condition of yours refuses, the error is a
// [*RefusedError]: look at the item, and commit another outcome or return a failure such as [Rejected].
// Return every other error as it is. A runner that can commit several jobs in one transaction is a
// [BatchRunner].
//
// An effect outside DynamoDB, such as an e-mail, is an [Effect]: you supply the call and say what its
// provider can do, and [NewEffect] makes the runner. It claims the job, stores the key of the request before
// the call, and finds out about a call of unknown outcome before it makes another one.
//
// # Send
//
// A [Client] sends jobs, cancels a job that has not run, and writes items on condition that a job can still
// run. It needs to know the name of the kind and the form of its payload, but not the kind itself.
//
// # Deploy
//
// [StartWorker] and [StartRedrive] are the main functions of two Lambda functions:
//
//	func main() { acklast.StartWorker(shop.Kinds()...) }
//
// The package infra/stack is a CDK construct with the queues, tables, functions, alarms and permissions, and
// takes the same kinds. The command acklast operates any such stack.
//
// # Test
//
// [CheckKind] delivers the samples of a kind to a worker in memory: twice, many at once, after lost answers,
// late. [Kind.Start] and [Starter.Try] make single attempts against any DynamoDB, to test what the effect is.
package acklast

// Package acklast runs SQS jobs on AWS Lambda whose effects happen once, and governs their dead-letter
// queue.
//
// A kind of job has a [Definition] and a runner. The definition says what a job of the kind is: its
// name, its payload, its key, its tables. The runner makes one attempt at a job:
//
//   - An effect in DynamoDB commits together with the job's ledger entry: [Job.Commit].
//   - An effect outside DynamoDB, such as an e-mail, runs behind a lease: [NewEffect].
//
// [StartWorker] and [StartRedrive] are the main functions of the two Lambda functions. [Client] sends
// jobs. [CheckKind] tests a kind in memory.
package acklast

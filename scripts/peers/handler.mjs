// The peer: the job reservation.expire by Powertools for AWS Lambda, as its documentation advises. Partial responses by
// its batch utility; one idempotency record for each job, by business fields and not by the message's id; the Lambda
// context is registered, so that a record in progress expires with the invocation; the local cache is on.
//
// PEERS_UNGUARDED leaves the effect to the idempotency utility alone, as in its examples: the units are added without a
// condition on the reservation's state.
import { BatchProcessor, EventType, processPartialResponse } from '@aws-lambda-powertools/batch';
import { IdempotencyConfig, makeIdempotent } from '@aws-lambda-powertools/idempotency';
import { DynamoDBPersistenceLayer } from '@aws-lambda-powertools/idempotency/dynamodb';
import { DynamoDBClient, TransactWriteItemsCommand, TransactionCanceledException } from '@aws-sdk/client-dynamodb';

const stack = process.env.ACKLAST_STACK;
const guarded = !process.env.PEERS_UNGUARDED;
const db = new DynamoDBClient({});
const config = new IdempotencyConfig({
  eventKeyJmesPath: 'powertools_json(body).[kind, payload.reservationId, payload.commandId]',
  throwOnNoIdempotencyKey: true,
  expiresAfterSeconds: 45 * 24 * 3600,
  useLocalCache: true,
});
const persistenceStore = new DynamoDBPersistenceLayer({ tableName: `${stack}-idempotency`, awsSdkV3Client: db });
const processor = new BatchProcessor(EventType.SQS);

const expire = makeIdempotent(
  async (record) => {
    const { payload } = JSON.parse(record.body);
    const now = String(Date.now());
    const names = { '#state': 'state', '#updated': 'updated_at' };
    const values = { ':expired': { S: 'expired' }, ':now': { N: now } };
    const reservation = {
      TableName: `${stack}-reservations`,
      Key: { reservation_id: { S: payload.reservationId } },
      UpdateExpression: 'SET #state = :expired, #updated = :now',
      ExpressionAttributeNames: names,
      ExpressionAttributeValues: values,
    };
    if (guarded) {
      Object.assign(names, { '#command': 'command_id', '#expires': 'expires_at' });
      Object.assign(values, { ':held': { S: 'held' }, ':command': { S: payload.commandId } });
      reservation.ConditionExpression = '#state = :held AND #command = :command AND #expires <= :now';
    }
    try {
      await db.send(
        new TransactWriteItemsCommand({
          TransactItems: [
            { Update: reservation },
            {
              Update: {
                TableName: `${stack}-resources`,
                Key: { resource_id: { S: payload.resourceId } },
                UpdateExpression: 'SET #available = #available + :units',
                ConditionExpression: 'attribute_exists(#id)',
                ExpressionAttributeNames: { '#id': 'resource_id', '#available': 'available' },
                ExpressionAttributeValues: { ':units': { N: String(payload.units) } },
              },
            },
          ],
        })
      );
    } catch (error) {
      const refused = error instanceof TransactionCanceledException && error.CancellationReasons?.[0]?.Code === 'ConditionalCheckFailed';
      if (!refused) throw error;
      return { outcome: 'superseded' };
    }
    return { outcome: 'released' };
  },
  { persistenceStore, config, dataIndexArgument: 0 }
);

export const handler = async (event, context) => {
  config.registerLambdaContext(context);
  return processPartialResponse(event, expire, processor, { context, throwOnFullBatchFailure: false });
};

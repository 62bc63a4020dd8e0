// A consumer that deduplicates events with the AWS SDK and a conditional put, without ichido. It reads requests as lines
// of JSON from standard input, and writes responses in the order in which they are ready.
'use strict';

const readline = require('node:readline');
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');
const { DynamoDBDocumentClient, GetCommand, PutCommand } = require('@aws-sdk/lib-dynamodb');

const SIX_HOURS = 6 * 3600;

class EventDeduplicationService {
  constructor() {
    const client = new DynamoDBClient({ region: process.env.AWS_REGION || 'us-east-1' });
    this.documents = DynamoDBDocumentClient.from(client);
    this.tableName = process.env.DEDUP_TABLE_NAME || 'slack-classify-bot-processed-events';
  }

  async checkAndMarkProcessed(eventKey, metadata) {
    const now = Math.floor(Date.now() / 1000);
    const put = new PutCommand({
      TableName: this.tableName,
      Item: { event_key: eventKey, processed_at: now, ttl: now + SIX_HOURS, ...metadata },
      ConditionExpression: 'attribute_not_exists(event_key)',
    });
    try {
      await this.documents.send(put);
      return { isNew: true };
    } catch (error) {
      if (error.name !== 'ConditionalCheckFailedException') throw error;
      return { isNew: false, reason: 'Already processed by another instance' };
    }
  }

  async read(eventKey) {
    const get = new GetCommand({ TableName: this.tableName, Key: { event_key: eventKey }, ConsistentRead: true });
    return (await this.documents.send(get)).Item ?? null;
  }

  async put(item) {
    await this.documents.send(new PutCommand({ TableName: this.tableName, Item: item }));
  }
}

const service = new EventDeduplicationService();

// Checks all keys concurrently, as a busy instance does.
async function race(keys) {
  const marks = await Promise.all(keys.map((key) => service.checkAndMarkProcessed(key, {})));
  return keys.filter((_, index) => marks[index].isNew);
}

async function handle({ check, metadata, read, put, race: keys }) {
  if (check !== undefined) return service.checkAndMarkProcessed(check, metadata);
  if (read !== undefined) return service.read(read);
  if (put !== undefined) return service.put(put);
  return race(keys);
}

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  try {
    console.log(JSON.stringify({ result: (await handle(JSON.parse(line))) ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
});

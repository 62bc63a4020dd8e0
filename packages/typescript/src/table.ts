// Operations on one item of the table, each a single conditional request.
//
// If a condition fails, the server returns the existing item. Some servers leave it out, Amazon's DynamoDB Local for
// example; then it is read with a consistent read. The two are not one step: whoever decides based on the item must write
// under a condition that still includes it.

import {
  ClockSkewError,
  ContendedError,
  IchidoError,
  MissingPackageError,
  PermissionDeniedError,
  RefusedError,
  TableMissingError,
  ThrottledError,
  UnreachableError,
  InvalidInputError,
} from './errors.js';
import type { AttributeValue, Item } from './item.js';

/** A client of `@aws-sdk/client-dynamodb`, or a document client around one. */
export interface DynamoClient {
  send(command: any, options?: any): Promise<any>;
  config?: any;
}

export interface TableOptions {
  /** The table. Default: `DEDUP_TABLE_NAME`, or slack-classify-bot-processed-events. */
  table?: string | undefined;
  /** The region. Default: `AWS_REGION`, or us-east-1. */
  region?: string | undefined;
  /** The address of a local server. Default: what the AWS SDK finds in the environment. */
  endpoint?: string | undefined;
  /** A client to use instead of a new one. */
  client?: DynamoClient | undefined;
}

/** A condition, and the values of all placeholders in it and in the update expression. */
export interface Condition {
  expression: string;
  values: Item;
}

export type Written = { applied: true; changed: Item } | { applied: false; found: Item | undefined };

export const ABSENT: Condition = { expression: 'attribute_not_exists(event_key)', values: {} };

/** The default table, which the bots that share it use as well. */
export function tableName(table?: string): string {
  const name = table ?? (process.env['DEDUP_TABLE_NAME'] || 'slack-classify-bot-processed-events');
  if (!/^[A-Za-z0-9_.-]{3,255}$/.test(name)) {
    throw new InvalidInputError('the table must have 3 to 255 characters of A-Z a-z 0-9 _ . -');
  }
  return name;
}

export class Table {
  readonly name: string;
  private connected: Promise<{ sdk: any; client: DynamoClient }> | undefined;

  constructor(private readonly options: TableOptions) {
    this.name = tableName(options.table);
  }

  /** The current item under a key. */
  async get(eventKey: string, signal: AbortSignal): Promise<Item | undefined> {
    const input = { TableName: this.name, Key: { event_key: { S: eventKey } }, ConsistentRead: true };
    const { Item: item } = await this.send('GetItemCommand', input, signal);
    return item && Object.keys(item).length > 0 ? item : undefined;
  }

  /** Puts an item if the condition holds. */
  put(item: Item, condition: Condition, signal: AbortSignal): Promise<Written> {
    return this.write('PutItemCommand', textOf(item['event_key']), { Item: item }, condition, signal);
  }

  /** Changes an item; `update` and the condition share their values. */
  update(eventKey: string, update: string, condition: Condition, signal: AbortSignal): Promise<Written> {
    const input = { Key: { event_key: { S: eventKey } }, UpdateExpression: update, ReturnValues: 'UPDATED_NEW' };
    return this.write('UpdateItemCommand', eventKey, input, condition, signal);
  }

  /** Removes an item if the condition holds. */
  delete(eventKey: string, condition: Condition, signal: AbortSignal): Promise<Written> {
    return this.write('DeleteItemCommand', eventKey, { Key: { event_key: { S: eventKey } } }, condition, signal);
  }

  private async write(
    command: string,
    eventKey: string,
    input: Record<string, unknown>,
    { expression, values }: Condition,
    signal: AbortSignal,
  ): Promise<Written> {
    const usesTtl = `${expression} ${input['UpdateExpression'] ?? ''}`.includes('#ttl');
    const full = {
      TableName: this.name,
      ...input,
      ConditionExpression: expression,
      ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
      // The server refuses names and values that are not used. `ttl` is a reserved word.
      ...(usesTtl ? { ExpressionAttributeNames: { '#ttl': 'ttl' } } : {}),
      ...(Object.keys(values).length > 0 ? { ExpressionAttributeValues: values } : {}),
    };
    try {
      const reply = await this.send(command, full, signal);
      return { applied: true, changed: reply.Attributes ?? {} };
    } catch (error) {
      if (!(error instanceof ConditionFailed)) throw error;
      const { item } = error;
      const found = item && Object.keys(item).length > 0 ? item : await this.get(eventKey, signal);
      return { applied: false, found };
    }
  }

  private async send(command: string, input: unknown, signal: AbortSignal): Promise<any> {
    const { sdk, client } = await this.connect();
    await this.checkClock(sdk, client, signal);
    try {
      return await client.send(new sdk[command](input), { abortSignal: signal });
    } catch (error) {
      throw classify(this.name, error, command === 'GetItemCommand');
    }
  }

  /**
   * The SDK learns from each response how far the clocks are apart, and signs with the server's time. Expiry is judged by
   * this machine's clock, so a clock that is wrong by minutes is an error. One read tells whether it is still wrong.
   */
  private async checkClock(sdk: any, client: DynamoClient, signal: AbortSignal): Promise<void> {
    if (!isSkewed(client)) return;
    const probe = { TableName: this.name, Key: { event_key: { S: 'ichido#clock' } } };
    await client.send(new sdk.GetItemCommand(probe), { abortSignal: signal }).catch(() => undefined);
    if (isSkewed(client)) throw clockSkew(client.config.systemClockOffset);
  }

  private connect(): Promise<{ sdk: any; client: DynamoClient }> {
    this.connected ??= this.open().catch((error) => {
      this.connected = undefined;
      throw error;
    });
    return this.connected;
  }

  private async open(): Promise<{ sdk: any; client: DynamoClient }> {
    const sdk: any = await import('@aws-sdk/client-dynamodb').catch((cause) => {
      throw new MissingPackageError('DynamoDB needs the AWS SDK: npm install @aws-sdk/client-dynamodb', { cause });
    });
    const { client, endpoint, region } = this.options;
    const settings = {
      region: region ?? (process.env['AWS_REGION'] || 'us-east-1'),
      ...(endpoint === undefined ? {} : { endpoint }),
      // Only the caller of this table knows the deadline and the nonce, and it retries.
      maxAttempts: 1,
    };
    return { sdk, client: client ?? new sdk.DynamoDBClient(settings) };
  }
}

/** More than this and DynamoDB itself refuses a request. */
const SKEW_MAX_MS = 300_000;

function isSkewed(client: DynamoClient): boolean {
  return Math.abs(client.config?.systemClockOffset ?? 0) >= SKEW_MAX_MS;
}

function clockSkew(offsetMs: number, cause?: unknown): ClockSkewError {
  const direction = offsetMs > 0 ? 'behind' : 'ahead of';
  const minutes = Math.round(Math.abs(offsetMs) / 60_000);
  const message = `the clock of this machine is ${minutes} minutes ${direction} DynamoDB's; synchronise it (NTP), then retry`;
  return new ClockSkewError(message, -offsetMs, cause);
}

/** The condition of a write failed. */
class ConditionFailed extends Error {
  constructor(readonly item: Item | undefined) {
    super();
  }
}

const THROTTLED = [
  'ProvisionedThroughputExceededException',
  'ThrottlingException',
  'Throttling',
  'RequestLimitExceeded',
  'RequestThrottled',
  'RequestThrottledException',
  'TooManyRequestsException',
  'LimitExceededException',
];
const DENIED = [
  'AccessDeniedException',
  'AccessDenied',
  'UnrecognizedClientException',
  'InvalidSignatureException',
  'IncompleteSignatureException',
  'MissingAuthenticationTokenException',
  'MissingAuthenticationToken',
  'ExpiredTokenException',
  'InvalidClientTokenId',
];
const CONTENDED = ['TransactionConflictException', 'ReplicatedWriteConflictException', 'TransactionInProgressException'];
const NEVER_SENT = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN'];
const SKEWED = ['RequestTimeTooSkewed', 'RequestExpired', 'RequestInTheFuture'];

/** What an error of the SDK means, and whether the write may have been applied. */
function classify(table: string, error: any, isRead: boolean): Error {
  const name: string = error?.name ?? '';
  const status: number | undefined = error?.$metadata?.httpStatusCode;
  const effect = isRead ? 'none' : 'unknown';
  // The SDK's errors may contain an item with its token, so only the name and the message are kept.
  const cause = new Error(`${name}: ${error?.message ?? 'no message'} (status ${status ?? 'none'})`);
  if (name === 'ConditionalCheckFailedException') return new ConditionFailed(error.Item);
  if (error instanceof IchidoError) return error;
  const skewed = SKEWED.includes(name) || (name === 'InvalidSignatureException' && error.$metadata?.clockSkewCorrected);
  if (skewed || /Signature (expired|not yet current)/.test(error?.message ?? '')) {
    const message = "DynamoDB refused the request because the clock of this machine is wrong; synchronise it (NTP), then retry";
    return new ClockSkewError(message, NaN, cause);
  }
  if (name === 'ResourceNotFoundException') {
    const message = `table ${table} does not exist in this region; create it with deploy/aws/ichido.yaml or \`ichido ledger init\`, or correct DEDUP_TABLE_NAME and AWS_REGION`;
    return new TableMissingError(message, { cause });
  }
  if (THROTTLED.includes(name) || status === 429) {
    const message = `DynamoDB throttles table ${table}; retry more slowly, or give the table more capacity`;
    return new ThrottledError(message, { cause });
  }
  if (CONTENDED.includes(name)) return new ContendedError(`a concurrent change interfered in table ${table}`, { cause });
  if (name === 'CredentialsProviderError') {
    const message = 'no AWS credentials found; set them in the environment, a profile, or the role of the function or container';
    return new PermissionDeniedError(message, { cause });
  }
  if (DENIED.includes(name)) {
    const message = `DynamoDB denied access to table ${table} (${name}); the role needs PutItem and GetItem for events, and also UpdateItem and DeleteItem for claims`;
    return new PermissionDeniedError(message, { cause });
  }
  const sent = !NEVER_SENT.includes(error?.code) && !NEVER_SENT.includes(error?.errno);
  if (status === undefined || status >= 500 || status === 408) {
    const message = `DynamoDB does not answer for table ${table}; check the network, the region and the endpoint`;
    return new UnreachableError(message, { cause, effect: sent ? effect : 'none' });
  }
  const message = `DynamoDB rejected the request to table ${table} (${name}); its key must be event_key (S)`;
  return new RefusedError(message, { cause });
}

function textOf(value: AttributeValue | undefined): string {
  return value && 'S' in value ? value.S : '';
}

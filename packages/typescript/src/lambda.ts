// Wrappers for Lambda handlers: each event runs once. All work is awaited, so nothing is left to do in a frozen sandbox.

import { InvalidInputError } from './errors.js';
import { once, type Held, type OnceOptions } from './once.js';

export interface OnceHandlerOptions<E> extends OnceOptions {
  /** The key of an event: something that the sender does not change when it sends the event again. */
  key: (event: E) => string | undefined;
}

/**
 * Runs the handler once for each key; a repeated event gets the first result. If it is still running elsewhere, or in
 * doubt, the invocation fails, and Lambda's own retries and dead-letter queue apply.
 */
export function onceHandler<E, C, R>(
  handler: (event: E, context: C, held: Held) => Promise<R> | R,
  options: OnceHandlerOptions<E>,
): (event: E, context: C) => Promise<R> {
  const { key, ...rest } = options;
  return async (event, context) => once(keyOf(key, event), (held) => handler(event, context, held), rest);
}

/** A message of SQS, as far as it is used here. */
export interface SqsRecord {
  messageId: string;
  eventSourceARN?: string;
  body: string;
}

export interface BatchResponse {
  batchItemFailures: { itemIdentifier: string }[];
}

export interface OnceBatchOptions<M extends SqsRecord> extends OnceOptions {
  /** The key of a message. Default: its message id, which SQS keeps when it delivers the message again. */
  key?: ((record: M) => string | undefined) | undefined;
  /** How many messages run at once. A FIFO queue runs one at a time. Default: 10. */
  concurrency?: number | undefined;
  /** Called for each message that failed. Default: one line in the log. */
  onFailure?: ((record: M, error: unknown) => void) | undefined;
}

/**
 * Runs the handler once for each message, and reports those that failed, so that only they are delivered again. The
 * event source mapping needs `ReportBatchItemFailures`. A message that is in doubt fails on every delivery, until it is
 * resolved or reaches the dead-letter queue: it is neither lost nor run twice.
 */
export function onceBatchHandler<M extends SqsRecord, C>(
  handler: (record: M, context: C, held: Held) => unknown,
  options: OnceBatchOptions<M> = {},
): (event: { Records: M[] }, context: C) => Promise<BatchResponse> {
  const { key = (record: M) => record.messageId, concurrency = 10, onFailure = logFailure, ...rest } = options;
  // A message that another invocation is running is delivered again anyway, so there is no point in waiting for it.
  const settings = { waitMs: 0, ...rest };
  return async (event, context) => {
    const records = event?.Records;
    if (!Array.isArray(records)) throw new InvalidInputError('the event has no Records; onceBatchHandler is for SQS');
    const failed = new Set<M>();
    const isFifo = records.some((record) => record.eventSourceARN?.endsWith('.fifo'));
    const queue = records.values();
    const worker = async () => {
      for (const record of queue) {
        // In a FIFO queue, nothing may overtake a message that failed.
        if (isFifo && failed.size > 0) {
          failed.add(record);
          continue;
        }
        try {
          await once(keyOf(key, record), async (held) => (await handler(record, context, held)) ?? null, settings);
        } catch (error) {
          failed.add(record);
          onFailure(record, error);
        }
      }
    };
    await Promise.all(Array.from({ length: isFifo ? 1 : Math.max(1, concurrency) }, worker));
    const failures = records.filter((record) => failed.has(record));
    return { batchItemFailures: failures.map(({ messageId }) => ({ itemIdentifier: messageId })) };
  };
}

function keyOf<E>(key: (event: E) => string | undefined, event: E): string {
  const found = key(event);
  if (typeof found === 'string' && found !== '') return found;
  throw new InvalidInputError('the event has no key; check the `key` function');
}

function logFailure(record: SqsRecord, error: unknown): void {
  console.error('message failed', { message_id: record.messageId, error: String(error) });
}

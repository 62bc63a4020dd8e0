// ichido: run each operation once.

export { deduplicateEvents, type BoltOptions } from './bolt.js';
export {
  EventDeduplicationService,
  HybridDeduplicationService,
  type DeduplicationResult,
  type EventDeduplicationOptions,
  type Fallback,
  type HybridDeduplicationOptions,
} from './deduplication.js';
export * from './errors.js';
export { idempotentFetch, type IdempotentFetchOptions } from './fetch.js';
export {
  onceBatchHandler,
  onceHandler,
  type BatchResponse,
  type OnceBatchOptions,
  type OnceHandlerOptions,
  type SqsRecord,
} from './lambda.js';
export { once, type Held, type OnceOptions } from './once.js';
export type { DynamoClient } from './table.js';
export { batchKey, sourceEventId, spoolFileName, type IdScheme, type SpoolFile, type UsageParts } from './usage.js';

// Ids of usage records, keys of batches and names of spool files, as ichido computes them.

import { createHash } from 'node:crypto';

import { InvalidInputError } from './errors.js';
import { checkCount, checkLength } from './limits.js';

export interface UsageParts {
  /** YYYY-MM-DD. */
  usage_date: string;
  /** The normalized name of the provider. */
  provider: string;
  /** The normalized name of the model. */
  model: string;
  /** The app; empty if the record covers all apps. */
  app_id?: string | null;
  /** The user; empty if the record covers all users. */
  user_id?: string | null;
}

/** How the hash of an id is computed: over the values in sorted order, or in the order of `UsageParts`. */
export type IdScheme = 'sorted' | 'fixed-order';

const ID_BYTES = 255;

/** The id of a usage record: `dify-{usage_date}-{provider}-{model}-{hash}`. The same usage has the same id. */
export function sourceEventId(parts: UsageParts, scheme: IdScheme = 'sorted'): string {
  const { usage_date, provider, model } = parts;
  const [app_id, user_id] = [parts.app_id ?? '', parts.user_id ?? ''];
  checkDate(usage_date);
  for (const [field, value] of Object.entries({ provider, model })) {
    if (value === '') throw new InvalidInputError(`${field}: must not be empty`);
  }
  for (const [field, value] of Object.entries({ provider, model, app_id, user_id })) checkPart(field, value);
  const values = [usage_date, provider, model, app_id, user_id];
  // Sorts by UTF-16 code unit, like every implementation of this id.
  if (scheme === 'sorted') values.sort();
  const hash = createHash('sha256').update(values.join('|'), 'utf8').digest('hex').slice(0, 12);
  const id = `dify-${usage_date}-${provider}-${model}-${hash}`;
  return checkLength('source_event_id', id, ID_BYTES);
}

/** The key of a batch: the record keys, sorted by UTF-16 code unit and joined with commas, as a SHA-256 in hex. */
export function batchKey(ids: readonly string[]): string {
  if (ids.length === 0) return '';
  const joined = ids.map((id) => checkLength('a record key', id, Infinity)).sort().join(',');
  return createHash('sha256').update(joined, 'utf8').digest('hex');
}

export interface SpoolFile {
  /** The first attempt (spool), or the move (failed). */
  at: Date | number;
  /** The key of the batch. */
  key: string;
  /** Default: spool. */
  prefix?: 'spool' | 'failed';
  /** Distinguishes batches whose names would be equal otherwise. Default: 1. */
  copy?: number;
  /** Whether the file is compressed. */
  gzip?: boolean;
}

/** The name of a batch's file: `spool_20250118T120530Z_a3f2e1b9c4d5.json`. */
export function spoolFileName({ at, key, prefix = 'spool', copy = 1, gzip = false }: SpoolFile): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) throw new InvalidInputError('at must be a date, or milliseconds since the epoch');
  checkCount('copy', copy, 4_294_967_295);
  const compact = time.toISOString().replace(/[-:]|\.\d+/g, '');
  const start = /^[A-Za-z0-9]{0,12}/.exec(key)?.[0] || 'none';
  return `${prefix}_${compact}_${start}${copy > 1 ? `_${copy}` : ''}.json${gzip ? '.gz' : ''}`;
}

function checkDate(date: unknown): void {
  const isDate = typeof date === 'string' && /^\d{4}-\d{2}-\d{2}$/.test(date);
  const time = isDate ? new Date(`${date}T00:00:00Z`) : new Date(NaN);
  if (Number.isNaN(time.getTime()) || time.toISOString().slice(0, 10) !== date) {
    throw new InvalidInputError('usage_date: must be a date of the form YYYY-MM-DD');
  }
}

function checkPart(field: string, value: unknown): void {
  if (typeof value !== 'string') throw new InvalidInputError(`${field}: must be a string`);
  checkLength(field, value, Infinity);
  if (/[\p{Cc}\u2028\u2029]/u.test(value)) {
    throw new InvalidInputError(`${field}: must not contain control characters or line separators`);
  }
  if (value.includes('|')) {
    throw new InvalidInputError(`${field}: must not contain '|', because ids would be ambiguous`);
  }
}

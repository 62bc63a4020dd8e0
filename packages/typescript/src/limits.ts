// Limits, checked before anything is sent. They are those of every ledger.

import { InvalidInputError } from './errors.js';

export const KEY_BYTES = 1024;
export const LEASE_MS = 3_600_000;
export const RETENTION_SECONDS = 3_660 * 86_400;
const METADATA_BYTES = 8 * 1024;
const REASON_BYTES = 1024;
const RESERVED = ['event_key', 'processed_at', 'ttl'];

/** Checks a text that must not be empty. */
export function checkText(what: string, text: unknown, max: number): string {
  if (typeof text !== 'string' || text === '') throw new InvalidInputError(`${what} must be a string that is not empty`);
  return checkLength(what, text, max);
}

/** Checks a text that may be empty. */
export function checkLength(what: string, text: string, max: number): string {
  // A lone surrogate has no UTF-8 form: two different texts would have the same bytes.
  if (/\p{Surrogate}/u.test(text)) throw new InvalidInputError(`${what} contains half of a surrogate pair`);
  const size = Buffer.byteLength(text);
  if (size > max) throw new InvalidInputError(`${what} is ${size} bytes; at most ${max} are allowed`);
  return text;
}

/** Checks a whole number of at least 1. */
export function checkCount(what: string, value: unknown, max: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new InvalidInputError(`${what} must be a whole number between 1 and ${max}`);
}

/** Checks the names and the size of metadata. */
export function checkMetadata(entries: [string, string][]): void {
  let size = 0;
  for (const [name, value] of entries) {
    checkText('a metadata name', name, METADATA_BYTES);
    if (RESERVED.includes(name) || name.startsWith('ichido_')) {
      throw new InvalidInputError(`metadata name ${JSON.stringify(name)} is reserved; choose another`);
    }
    size += Buffer.byteLength(name) + Buffer.byteLength(checkLength(`metadata ${name}`, value, METADATA_BYTES));
  }
  if (size > METADATA_BYTES) {
    throw new InvalidInputError(`metadata is ${size} bytes; at most ${METADATA_BYTES} are allowed`);
  }
}

/** Shortens a reason for operators to its limit. */
export function shortReason(text: string): string {
  let short = text.slice(0, REASON_BYTES);
  while (Buffer.byteLength(short) > REASON_BYTES) short = short.slice(0, -1);
  return short.toWellFormed();
}

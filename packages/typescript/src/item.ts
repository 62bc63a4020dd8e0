// Converts claims and marks to items of the table and back, exactly as ichido does.
//
// Only completed claims have a `ttl`, so DynamoDB never removes a claim that is running or in doubt. An item of another
// format is refused: it is neither read nor granted.

import { claimIndex, markIndex } from './digest.js';
import { InvalidInputError, ItemError } from './errors.js';
import { checkMetadata } from './limits.js';
import { expiresAt, type ClaimRecord, type DoubtReason, type Key, type Outcome, type State } from './record.js';

export type AttributeValue =
  | { S: string }
  | { N: string }
  | { B: Uint8Array }
  | { BOOL: boolean }
  | { NULL: boolean }
  | { L: AttributeValue[] }
  | { M: { [name: string]: AttributeValue } };

export type Item = { [name: string]: AttributeValue };

/** The format of a claim without a caller, and with one. */
export const FORMATS = ['1', '2'] as const;
/** The prefix of claims' keys. Marks whose key starts with it are stored under their hash. */
const CLAIMS = 'ichido#';
/** Starts the text of an erased key; its hash follows. */
const ERASED = 'erased:';
/** Larger outcomes are replaced by a tombstone: an item holds 400 KB. */
export const OUTCOME_BYTES = 350 * 1024;

/** A text. An empty one is `NULL`, because old servers refuse empty strings. Both are read alike. */
export function text(value: string): AttributeValue {
  return value === '' ? { NULL: true } : { S: value };
}

export function number(value: number): AttributeValue {
  return { N: String(value) };
}

export function blob(bytes: Uint8Array): AttributeValue {
  return bytes.length === 0 ? { NULL: true } : { B: bytes };
}

/** The key of a claim's item. */
export function claimKey({ tenant, route, text }: Key): string {
  return CLAIMS + claimIndex(tenant, route, text);
}

/** An outcome as it fits into an item. */
export function fitting(outcome: Outcome): Outcome {
  if ('tombstone' in outcome || outcome.kept.length <= OUTCOME_BYTES) return outcome;
  const size = outcome.kept.length;
  return { tombstone: `the outcome has ${size} bytes; a dynamodb: ledger keeps at most ${OUTCOME_BYTES}` };
}

/** The item of a claim. */
export function encodeClaim(record: ClaimRecord): Item {
  const metadata = Object.entries(record.metadata).map(([name, value]) => [name, text(value)]);
  return {
    event_key: text(claimKey(record.key)),
    ichido_format: { N: record.caller === undefined ? FORMATS[0] : FORMATS[1] },
    ichido_token: text(record.token),
    ichido_nonce: text(record.nonce),
    ichido_fingerprint: text(record.fingerprint),
    ichido_attempt: number(record.attempt),
    ichido_holder: text(record.holder),
    ichido_renewals: number(record.renewals),
    ichido_lease_ms: number(record.leaseMs),
    ichido_retention_ms: number(record.retentionMs),
    ichido_retention_seconds: number(Math.ceil(record.retentionMs / 1000)),
    ichido_claimed_at: number(record.claimedAt),
    ichido_renewed_at: number(record.renewedAt),
    ichido_over_at: number(expiresAt(record)),
    ichido_tenant: text(record.key.tenant),
    ichido_route: text(record.key.route),
    ichido_key: text(record.key.text),
    ichido_metadata: { M: Object.fromEntries(metadata) },
    ...(record.caller === undefined ? {} : { ichido_caller: text(record.caller) }),
    ...encodeState(record),
  };
}

function encodeState(record: ClaimRecord): Item {
  const { state } = record;
  switch (state.kind) {
    case 'running':
      return { ichido_state: text('running') };
    case 'in-doubt':
      return {
        ichido_state: text('in-doubt'),
        ichido_doubt: text(state.reason.kind),
        ichido_doubt_since: number(state.since),
        ichido_doubt_text: text(state.reason.kind === 'declared' ? state.reason.text : ''),
      };
    case 'done': {
      const outcome = fitting(state.outcome);
      return {
        ichido_state: text('done'),
        ichido_completed_at: number(state.completedAt),
        ttl: number(Math.ceil(expiresAt(record) / 1000)),
        ...('tombstone' in outcome
          ? { ichido_tombstone: text(outcome.tombstone) }
          : { ichido_outcome_bytes: number(outcome.kept.length), ichido_outcome: blob(outcome.kept) }),
      };
    }
  }
}

/** The claim of an item. */
export function decodeClaim(item: Item): ClaimRecord {
  const read = new Reader(item);
  read.checkFormat();
  const key = { tenant: read.text('ichido_tenant'), route: read.text('ichido_route'), text: read.text('ichido_key') };
  const eventKey = read.text('event_key');
  // Of a key that an operator erased, only the hash is left.
  const isErased = key.text.startsWith(ERASED) && CLAIMS + key.text.slice(ERASED.length) === eventKey;
  if (claimKey(key) !== eventKey && !isErased) throw read.damaged('ichido_key');
  return {
    key,
    fingerprint: read.hex('ichido_fingerprint', 64),
    ...('ichido_caller' in item ? { caller: read.hex('ichido_caller', 64) } : {}),
    nonce: read.hex('ichido_nonce', 32),
    token: read.hex('ichido_token', 32),
    attempt: read.number('ichido_attempt'),
    holder: read.oneOf('ichido_holder', ['process', 'remote']),
    claimedAt: read.number('ichido_claimed_at'),
    renewedAt: read.number('ichido_renewed_at'),
    renewals: read.number('ichido_renewals'),
    leaseMs: read.number('ichido_lease_ms'),
    retentionMs: read.number('ichido_retention_ms'),
    metadata: read.metadata(),
    state: read.state(),
  };
}

/** Reads attributes, and names the one that is damaged. Values are not shown: a token is a capability. */
class Reader {
  constructor(private readonly item: Item) {}

  checkFormat(): void {
    const format = this.item['ichido_format'];
    const found = format && 'N' in format ? format.N : undefined;
    if ((FORMATS as readonly (string | undefined)[]).includes(found)) return;
    const what = found === undefined ? 'has no format number' : `has format ${found}`;
    throw new ItemError(
      `item ${this.key()} ${what}, but this version supports formats ${FORMATS.join(' and ')}: ` +
        'another version of ichido wrote it; update this package, or delete the item',
    );
  }

  state(): State {
    switch (this.oneOf('ichido_state', ['running', 'in-doubt', 'done'])) {
      case 'running':
        return { kind: 'running' };
      case 'in-doubt':
        return { kind: 'in-doubt', since: this.number('ichido_doubt_since'), reason: this.doubtReason() };
      case 'done':
        return { kind: 'done', outcome: this.outcome(), completedAt: this.number('ichido_completed_at') };
    }
  }

  metadata(): Record<string, string> {
    const map = this.item['ichido_metadata'];
    if (!map || !('M' in map)) throw this.damaged('ichido_metadata');
    const entries = Object.entries(map.M).map(([name, value]): [string, string] => {
      const text = plain(value);
      if (text === undefined) throw this.damaged('ichido_metadata');
      return [name, text];
    });
    return Object.fromEntries(entries);
  }

  text(name: string): string {
    const value = this.item[name];
    const text = value && plain(value);
    if (text === undefined) throw this.damaged(name);
    return text;
  }

  hex(name: string, digits: number): string {
    const text = this.text(name);
    if (text.length !== digits || !/^[0-9a-f]*$/i.test(text)) throw this.damaged(name);
    return text.toLowerCase();
  }

  number(name: string): number {
    const value = this.item[name];
    const number = value && 'N' in value && /^\d+$/.test(value.N) ? Number(value.N) : NaN;
    if (!Number.isSafeInteger(number)) throw this.damaged(name);
    return number;
  }

  oneOf<T extends string>(name: string, known: readonly T[]): T {
    const text = this.text(name);
    const found = known.find((one) => one === text);
    if (found === undefined) throw this.damaged(name);
    return found;
  }

  damaged(name: string): ItemError {
    return new ItemError(`item ${this.key()}: attribute ${name} is missing or damaged`);
  }

  private doubtReason(): DoubtReason {
    const kind = this.oneOf('ichido_doubt', ['lease-lapsed', 'holder-gone', 'declared']);
    return kind === 'declared' ? { kind, text: this.text('ichido_doubt_text') } : { kind };
  }

  private outcome(): Outcome {
    const { ichido_outcome: kept, ichido_tombstone: tombstone } = this.item;
    if (kept === undefined && tombstone !== undefined) return { tombstone: this.text('ichido_tombstone') };
    if (kept !== undefined && tombstone === undefined) {
      if ('B' in kept) return { kept: kept.B };
      if ('NULL' in kept) return { kept: new Uint8Array() };
    }
    throw this.damaged('ichido_outcome');
  }

  private key(): string {
    const key = this.item['event_key'];
    return key && 'S' in key ? key.S : '';
  }
}

export interface MarkRequest {
  key: string;
  nonce: string;
  retentionMs: number;
  /** Stored as top-level attributes, which other consumers of the table read. */
  metadata: Record<string, unknown>;
}

/** The key of a mark's item. */
export function markKey(key: string): string {
  return key.startsWith(CLAIMS) ? `${CLAIMS}mark#${markIndex(key)}` : key;
}

/** The item of a mark. */
export function encodeMark({ key, nonce, retentionMs, metadata }: MarkRequest, now: number): Item {
  const item: Item = {};
  for (const [name, value] of Object.entries(metadata)) {
    if (value !== undefined) item[name] = attribute(name, value);
  }
  checkMetadata(Object.entries(item).map(([name, value]) => [name, scalar(value) ?? JSON.stringify(value)]));
  const eventKey = markKey(key);
  return {
    ...item,
    ...(eventKey === key ? {} : { ichido_key: text(key) }),
    event_key: text(eventKey),
    processed_at: number(Math.floor(now / 1000)),
    ttl: number(Math.ceil((now + retentionMs) / 1000)),
    ichido_nonce: text(nonce),
  };
}

export interface Seen {
  /** When the event was first marked, in milliseconds since the epoch; zero if the item does not tell. */
  firstSeen: number;
  /** The first caller's metadata. Numbers and booleans are texts; what is neither is left out. */
  metadata: Record<string, string>;
}

/** What an existing item means to a request: nothing stands in its way, or the event was seen. */
export function readMark(item: Item, { nonce }: MarkRequest): Seen | undefined {
  const own = item['ichido_nonce'];
  if (own && 'S' in own && own.S === nonce) return undefined;
  const at = scalar(item['processed_at'] ?? { NULL: true })?.split('.')[0] ?? '';
  const foreign = Object.entries(item).filter(
    ([name]) => !['event_key', 'processed_at', 'ttl'].includes(name) && !name.startsWith('ichido_'),
  );
  const pairs = foreign.flatMap(([name, value]) => {
    const text = scalar(value);
    return text === undefined ? [] : [[name, text] as const];
  });
  const seconds = /^\d+$/.test(at) ? Number(at) : 0;
  return { firstSeen: seconds * 1000, metadata: Object.fromEntries(pairs) };
}

/** A value of a mark's metadata, with the type that a document client would give it. */
function attribute(name: string, value: unknown): AttributeValue {
  if (value === null) return { NULL: true };
  if (typeof value === 'string') return text(value);
  if (typeof value === 'boolean') return { BOOL: value };
  if ((typeof value === 'number' && Number.isFinite(value)) || typeof value === 'bigint') return { N: String(value) };
  if (Array.isArray(value)) return { L: value.map((one) => attribute(name, one)) };
  if (typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
    const entries = Object.entries(value).filter(([, one]) => one !== undefined);
    return { M: Object.fromEntries(entries.map(([inner, one]) => [inner, attribute(name, one)])) };
  }
  throw new InvalidInputError(`metadata ${name} must be a string, number, boolean, null, array or plain object`);
}

/** A scalar as text. */
function scalar(value: AttributeValue): string | undefined {
  if ('S' in value) return value.S;
  if ('N' in value) return value.N;
  if ('BOOL' in value) return String(value.BOOL);
  return 'NULL' in value ? '' : undefined;
}

/** A text that `text` wrote. */
function plain(value: AttributeValue): string | undefined {
  return 'S' in value ? value.S : 'NULL' in value ? '' : undefined;
}

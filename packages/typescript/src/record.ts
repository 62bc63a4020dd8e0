// Claims, and the rules that decide about them. These are the rules of every ledger, as pure functions: they take a record,
// a request and the time, and return the result and the record to write.

/** The outcome of an effect: bytes to replay, or why there are none. */
export type Outcome = { kept: Uint8Array } | { tombstone: string };

export type DoubtReason = { kind: 'lease-lapsed' } | { kind: 'holder-gone' } | { kind: 'declared'; text: string };

export interface Doubt {
  since: number;
  reason: DoubtReason;
}

export type State =
  | { kind: 'running' }
  | ({ kind: 'in-doubt' } & Doubt)
  | { kind: 'done'; outcome: Outcome; completedAt: number };

export interface Key {
  tenant: string;
  route: string;
  text: string;
}

/** A claim as it is stored. Times are milliseconds since the epoch; identifiers are hexadecimal. */
export interface ClaimRecord {
  key: Key;
  fingerprint: string;
  caller?: string;
  nonce: string;
  token: string;
  attempt: number;
  holder: 'process' | 'remote';
  claimedAt: number;
  renewedAt: number;
  renewals: number;
  leaseMs: number;
  retentionMs: number;
  metadata: Record<string, string>;
  state: State;
}

export type ClaimRequest = Pick<
  ClaimRecord,
  'key' | 'fingerprint' | 'caller' | 'nonce' | 'token' | 'leaseMs' | 'retentionMs' | 'holder' | 'metadata'
>;

export interface Grant {
  token: string;
  attempt: number;
  leaseMs: number;
  /** What is left of the lease. Less than `leaseMs` if the call was retried after a lost reply: renew first. */
  leftMs: number;
  /** Whether one server answered alone, during an outage of its ledger. */
  degraded?: boolean;
}

export type Claim =
  | { kind: 'granted'; grant: Grant }
  | { kind: 'held'; retryAfterMs: number }
  | { kind: 'in-doubt'; doubt: Doubt }
  | { kind: 'done'; outcome: Outcome }
  | { kind: 'mismatch' }
  | { kind: 'caller-changed' };

export type Action =
  | { kind: 'renew'; leaseMs: number }
  | { kind: 'complete'; outcome: Outcome }
  | { kind: 'release' }
  | { kind: 'doubt'; reason: string };

export type CurrentState = 'absent' | 'running' | 'in-doubt' | 'done';

export type Settled = { applied: true } | { applied: false; now: CurrentState };

/** How long a claim stays in doubt before it expires. */
export const DOUBT_RETENTION_MS = 30 * 86_400_000;

/** When a record expires: at the end of its retention or of its doubt. */
export function expiresAt(record: ClaimRecord): number {
  const { state } = record;
  switch (state.kind) {
    case 'running':
      return record.renewedAt + record.leaseMs + DOUBT_RETENTION_MS;
    case 'in-doubt':
      return state.since + DOUBT_RETENTION_MS;
    case 'done':
      return state.completedAt + record.retentionMs;
  }
}

type Phase =
  | { kind: 'running'; leftMs: number }
  | { kind: 'in-doubt'; doubt: Doubt }
  | { kind: 'done'; outcome: Outcome }
  | { kind: 'expired' };

/** What a record means at a time. */
function phase(record: ClaimRecord, now: number): Phase {
  const { state } = record;
  if (now >= expiresAt(record)) return { kind: 'expired' };
  switch (state.kind) {
    case 'running': {
      const leaseUntil = record.renewedAt + record.leaseMs;
      if (now < leaseUntil) return { kind: 'running', leftMs: leaseUntil - now };
      return { kind: 'in-doubt', doubt: { since: leaseUntil, reason: { kind: 'lease-lapsed' } } };
    }
    case 'in-doubt':
      return { kind: 'in-doubt', doubt: { since: state.since, reason: state.reason } };
    case 'done':
      return { kind: 'done', outcome: state.outcome };
  }
}

export interface Decision<T> {
  result: T;
  /** The record to write first, `null` to remove it; absent if nothing changes. */
  write?: ClaimRecord | null;
}

/** Claims a key. */
export function decideClaim(current: ClaimRecord | undefined, request: ClaimRequest, now: number): Decision<Claim> {
  if (current === undefined) return granted(request, now);
  const is = phase(current, now);
  if (is.kind === 'expired') return granted(request, now);
  // A request without a caller is not compared.
  if (request.caller !== undefined && request.caller !== current.caller) return { result: { kind: 'caller-changed' } };
  if (request.fingerprint !== current.fingerprint) return { result: { kind: 'mismatch' } };
  const own = current.nonce === request.nonce;
  switch (is.kind) {
    case 'done':
      return { result: { kind: 'done', outcome: is.outcome } };
    case 'in-doubt':
      // What the holder itself declared in doubt must not be run again, not even by its own call.
      if (own && is.doubt.reason.kind !== 'declared') break;
      return { result: { kind: 'in-doubt', doubt: is.doubt } };
    case 'running':
      if (own) break;
      return { result: { kind: 'held', retryAfterMs: is.leftMs } };
  }
  return { result: { kind: 'granted', grant: grantOf(current, now) } };
}

/** Settles a claim. Only the token is compared, never the rest of the record. */
export function decideSettle(
  current: ClaimRecord | undefined,
  token: string,
  action: Action,
  now: number,
): Decision<Settled> {
  if (current === undefined) return { result: { applied: false, now: 'absent' } };
  const is = phase(current, now);
  const state = is.kind === 'expired' ? 'absent' : is.kind;
  if (current.token !== token || state === 'absent') return { result: { applied: false, now: state } };
  if (is.kind === 'done') {
    return { result: action.kind === 'complete' ? { applied: true } : { applied: false, now: 'done' } };
  }
  const result: Settled = { applied: true };
  switch (action.kind) {
    case 'release':
      return { result, write: null };
    case 'complete':
      return { result, write: { ...current, state: { kind: 'done', outcome: action.outcome, completedAt: now } } };
    case 'renew': {
      const renewed = { renewedAt: now, renewals: current.renewals + 1, leaseMs: action.leaseMs };
      return { result, write: { ...current, ...renewed, state: { kind: 'running' } } };
    }
    case 'doubt': {
      const since = is.kind === 'in-doubt' ? is.doubt.since : now;
      const reason: DoubtReason = { kind: 'declared', text: action.reason };
      return { result, write: { ...current, state: { kind: 'in-doubt', since, reason } } };
    }
  }
}

/** A doubt for people. */
export function doubtText({ reason }: Doubt): string {
  switch (reason.kind) {
    case 'lease-lapsed':
      return 'the lease lapsed';
    case 'holder-gone':
      return 'the holding process is gone';
    case 'declared':
      return reason.text;
  }
}

function granted(request: ClaimRequest, now: number): Decision<Claim> {
  const record: ClaimRecord = {
    ...request,
    attempt: 1,
    claimedAt: now,
    renewedAt: now,
    renewals: 0,
    state: { kind: 'running' },
  };
  return { result: { kind: 'granted', grant: grantOf(record, now) }, write: record };
}

function grantOf(record: ClaimRecord, now: number): Grant {
  const leftMs = Math.max(0, record.renewedAt + record.leaseMs - now);
  return { token: record.token, attempt: record.attempt, leaseMs: record.leaseMs, leftMs };
}

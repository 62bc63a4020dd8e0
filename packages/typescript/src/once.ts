// Runs work once for a key: claim, run, record the outcome. Every later call gets the first outcome.

import { ApiLedger } from './api.js';
import { fingerprintOf, NO_FINGERPRINT, randomId } from './digest.js';
import {
  CallerChangedError,
  InDoubtError,
  InFlightError,
  InvalidInputError,
  isNothingHappened,
  KeyReusedError,
  LeaseLostError,
  OutcomeNotKeptError,
  UnrecordedError,
} from './errors.js';
import { DynamoLedger, type DynamoOptions, type Ledger } from './ledger.js';
import { checkCount, checkLength, checkMetadata, checkText, KEY_BYTES, LEASE_MS, RETENTION_SECONDS, shortReason } from './limits.js';
import { doubtText, type Action, type Claim, type ClaimRequest, type Grant, type Outcome, type Settled } from './record.js';
import { jitter, sleep } from './retry.js';
import { tableName, type DynamoClient } from './table.js';

export interface OnceOptions extends DynamoOptions {
  /** The address of a claim API, such as http://127.0.0.1:8070. Without it, claims are in the DynamoDB table. */
  api?: string | undefined;
  /** The admin token of the claim API. */
  token?: string | undefined;
  /** Stands for the request. The same key with another fingerprint is a `KeyReusedError`. */
  fingerprint?: string | undefined;
  /** How long a crashed holder blocks others before the claim is in doubt. Default: 30,000. */
  leaseMs?: number | undefined;
  /** For how long the lease is renewed at most. Default: 600,000. */
  leaseCeilingMs?: number | undefined;
  /** How long the outcome is kept. Default: 86,400. */
  retentionSeconds?: number | undefined;
  /** How long to wait while another holder runs it. Default: 60,000. */
  waitMs?: number | undefined;
  /** Names and values for operators. */
  metadata?: Record<string, string> | undefined;
  /** The scope of the key in the table. Default: that of the claim API, so that both share claims. */
  scope?: { tenant: string; route: string } | undefined;
  /** Ends the wait for another holder. Work that has started is not aborted. */
  signal?: AbortSignal | undefined;
}

/** What the work may use. */
export interface Held {
  /** Aborted when the claim is known to be lost: stop, and cause no effect. */
  readonly signal: AbortSignal;
  /** 1 for the first run, more after an operator or a takeover allowed another. */
  readonly attempt: number;
  /** Whether the server behind the claim API answered alone, during an outage of its ledger: another may run the same work. */
  readonly degraded: boolean;
  /** Renews the lease now, and throws a `LeaseLostError` if it is lost. Call it right before an effect that cannot be undone. */
  readonly confirm: () => Promise<void>;
}

/** The scope of claims of the API. */
const API_SCOPE = { tenant: '', route: '/v1/claims' };
const POLL_MS = { first: 100, longest: 2_000 };

/** Runs `work` unless it was done before, and returns the first outcome in either case. The outcome is stored as JSON. */
export async function once<T>(key: string, work: (held: Held) => Promise<T> | T, options: OnceOptions = {}): Promise<T> {
  const { waitMs = 60_000, signal } = options;
  const request = requestOf(key, options);
  const ledger = ledgerOf(options);
  const deadline = performance.now() + waitMs;
  for (let poll = POLL_MS.first; ; poll = Math.min(poll * 2, POLL_MS.longest)) {
    signal?.throwIfAborted();
    const claim = await ledger.claim(request);
    if (claim.kind === 'granted') return await run(ledger, request, claim.grant, work, options.leaseCeilingMs);
    if (claim.kind !== 'held') return ended<T>(claim);
    const wait = jitter(Math.min(Math.max(claim.retryAfterMs, 1), poll));
    if (performance.now() + wait >= deadline) {
      throw new InFlightError('another holder is running it; try again later, with the same key', claim.retryAfterMs);
    }
    await sleep(wait, signal);
  }
}

/** The outcome of a claim that nobody runs, or why there is none. */
function ended<T>(claim: Exclude<Claim, { kind: 'granted' | 'held' }>): T {
  switch (claim.kind) {
    case 'done': {
      const { outcome } = claim;
      if ('tombstone' in outcome) {
        throw new OutcomeNotKeptError(`it ran before, but its outcome was not kept: ${outcome.tombstone}`);
      }
      const text = Buffer.from(outcome.kept).toString();
      try {
        return JSON.parse(text);
      } catch {
        // An operator may have resolved the claim with plain text.
        return text as T;
      }
    }
    case 'in-doubt':
      throw new InDoubtError(
        `nobody knows whether it happened: ${doubtText(claim.doubt)}. Do not use a new key; an operator resolves it with \`ichido ledger resolve\``,
      );
    case 'mismatch':
      throw new KeyReusedError('the key was used with another fingerprint; use a new key for a new operation');
    case 'caller-changed':
      throw new CallerChangedError('the key was used by another caller');
  }
}

async function run<T>(
  ledger: Ledger,
  request: ClaimRequest,
  grant: Grant,
  work: (held: Held) => Promise<T> | T,
  ceilingMs = 600_000,
): Promise<T> {
  const lease = new Lease(ledger, request, grant);
  // The first response was lost, and part of the lease with it: make sure that this call still holds the claim.
  if (grant.leftMs < grant.leaseMs / 2) await lease.confirm();
  lease.keep(ceilingMs);
  try {
    let value: T;
    try {
      value = await work(lease);
    } catch (error) {
      throw await lease.failed(error);
    }
    await lease.complete(value);
    return value;
  } finally {
    lease.stop();
  }
}

/** A claim that this process holds: renewed every third of its lease, then settled. */
class Lease implements Held {
  readonly attempt: number;
  readonly degraded: boolean;
  private readonly lost = new AbortController();
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  constructor(
    private readonly ledger: Ledger,
    private readonly request: ClaimRequest,
    private readonly grant: Grant,
  ) {
    this.attempt = grant.attempt;
    this.degraded = grant.degraded ?? false;
  }

  get signal(): AbortSignal {
    return this.lost.signal;
  }

  // A property, so that it can be taken out of the object.
  readonly confirm = async (): Promise<void> => {
    this.lost.signal.throwIfAborted();
    const settled = await this.settle({ kind: 'renew', leaseMs: this.grant.leaseMs });
    if (settled.applied) return;
    const error = lostTo(settled.now, undefined);
    this.lost.abort(error);
    throw error;
  };

  /** Renews in the background, for at most `ceilingMs`. A frozen process renews as soon as it runs again. */
  keep(ceilingMs: number): void {
    const started = performance.now();
    const third = Math.max(1, Math.floor(this.grant.leaseMs / 3));
    const tick = async () => {
      if (this.stopped || performance.now() - started >= ceilingMs) return;
      // A renewal that fails is tried again after another third; a lost claim ends it.
      await this.confirm().catch(() => undefined);
      if (!this.stopped && !this.lost.signal.aborted) this.timer = setTimeout(tick, third);
    };
    this.timer = setTimeout(tick, third);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  /** Records the outcome. The token fences it: success is reported only if this run still counts. */
  async complete(value: unknown): Promise<void> {
    let settled: Settled;
    try {
      settled = await this.settle({ kind: 'complete', outcome: outcomeOf(value) });
    } catch (cause) {
      const message = 'it ran, but its outcome could not be recorded; the claim becomes in doubt when its lease lapses';
      throw new UnrecordedError(message, value, { cause, effect: 'done' });
    }
    if (!settled.applied) throw lostTo(settled.now, value);
  }

  /** Settles the claim of work that failed, and returns the error for the caller. */
  async failed(error: unknown): Promise<unknown> {
    const nothing = isNothingHappened(error);
    const name = error instanceof Error ? error.name : typeof error;
    // Only the name: a message may contain a secret, and the reason is shown to operators.
    const reason = shortReason(`the work failed with ${name}`);
    let settled: Settled;
    try {
      settled = await this.settle(nothing ? { kind: 'release' } : { kind: 'doubt', reason });
    } catch (cause) {
      const what = nothing ? 'nothing happened, but the claim could not be released' : 'the work failed, and may have had an effect';
      const message = `${what}; the claim becomes in doubt when its lease lapses`;
      const effect = nothing ? 'none' : 'unknown';
      return new UnrecordedError(message, undefined, { cause: new AggregateError([error, cause]), effect });
    }
    if (!settled.applied) return lostTo(settled.now, undefined, error);
    if (nothing) return error;
    return new InDoubtError('the work failed, and may have had an effect; the claim is in doubt', { cause: error });
  }

  private settle(action: Action): Promise<Settled> {
    return this.ledger.settle(this.request.key, this.grant.token, action);
  }
}

function lostTo(now: string, value: unknown, cause?: unknown): LeaseLostError {
  const message =
    `the claim was lost while the work ran (it is ${now} now), because the process was frozen or cut off for longer than ` +
    'its lease, or an operator settled it; the effect may have happened twice';
  return new LeaseLostError(message, value, cause);
}

function outcomeOf(value: unknown): Outcome {
  try {
    return { kept: Buffer.from(JSON.stringify(value) ?? 'null') };
  } catch (error) {
    return { tombstone: shortReason(`the result cannot be serialized as JSON: ${(error as Error).name}`) };
  }
}

function requestOf(key: string, options: OnceOptions): ClaimRequest & { fingerprintText?: string } {
  const { fingerprint, leaseMs = 30_000, retentionSeconds = 86_400, metadata = {}, scope = API_SCOPE } = options;
  checkText('key', key, KEY_BYTES);
  checkLength('scope.tenant', scope.tenant, KEY_BYTES);
  checkLength('scope.route', scope.route, KEY_BYTES);
  checkCount('leaseMs', leaseMs, LEASE_MS);
  checkCount('retentionSeconds', retentionSeconds, RETENTION_SECONDS);
  for (const [name, value] of Object.entries(metadata)) {
    if (typeof value !== 'string') throw new InvalidInputError(`metadata ${name} must be a string`);
  }
  checkMetadata(Object.entries(metadata));
  if (fingerprint !== undefined) checkText('fingerprint', fingerprint, KEY_BYTES);
  if (options.api !== undefined && options.scope !== undefined) {
    throw new InvalidInputError('scope is for claims in a table; the claim API has one of its own');
  }
  return {
    key: { ...scope, text: key },
    fingerprint: fingerprint === undefined ? NO_FINGERPRINT : fingerprintOf(fingerprint),
    nonce: randomId(),
    token: randomId(),
    leaseMs,
    retentionMs: retentionSeconds * 1000,
    holder: 'process',
    metadata,
    ...(fingerprint === undefined ? {} : { fingerprintText: fingerprint }),
  };
}

// A ledger remembers the leases that it has watched, so calls for the same table share one.
const byAddress = new Map<string, Ledger>();
const byClient = new WeakMap<DynamoClient, Map<string, Ledger>>();

function ledgerOf(options: OnceOptions): Ledger {
  const { api, token, client, region, endpoint, timeoutMs, tryTimeoutMs, clock } = options;
  if (api !== undefined) return new ApiLedger({ api, token, timeoutMs });
  if (token !== undefined) throw new InvalidInputError('token is for a claim API; set api as well');
  const table = tableName(options.table);
  const settings = { table, region, endpoint, client, timeoutMs, tryTimeoutMs, clock };
  // Tests pass clocks of their own.
  if (clock !== undefined) return new DynamoLedger(settings);
  const id = JSON.stringify([table, region, endpoint, timeoutMs, tryTimeoutMs, process.env['AWS_REGION']]);
  let ledgers: Map<string, Ledger> = byAddress;
  if (client !== undefined) {
    ledgers = byClient.get(client) ?? new Map();
    byClient.set(client, ledgers);
  }
  const ledger = ledgers.get(id) ?? new DynamoLedger(settings);
  ledgers.set(id, ledger);
  return ledger;
}


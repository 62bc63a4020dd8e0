// A ledger of claims, reached directly in a DynamoDB table. It writes and reads the same items as ichido.

import { ContendedError } from './errors.js';
import {
  blob,
  claimKey,
  decodeClaim,
  encodeClaim,
  encodeMark,
  fitting,
  FORMATS,
  number,
  readMark,
  text,
  type Item,
  type MarkRequest,
  type Seen,
} from './item.js';
import { LeaseWatch, systemClock, type Clock } from './lease-watch.js';
import {
  decideClaim,
  decideSettle,
  DOUBT_RETENTION_MS,
  type Action,
  type Claim,
  type ClaimRecord,
  type ClaimRequest,
  type Key,
  type Outcome,
  type Settled,
} from './record.js';
import { retrying, type RetrySettings } from './retry.js';
import { ABSENT, Table, type Condition, type TableOptions } from './table.js';

/** Stores claims. */
export interface Ledger {
  claim(request: ClaimRequest): Promise<Claim>;
  settle(key: Key, token: string, action: Action): Promise<Settled>;
}

export interface DynamoOptions extends TableOptions {
  /** How long a call may take, including all tries. Default: 5,000. */
  timeoutMs?: number | undefined;
  /** How long one try may take. Default: 1,500. */
  tryTimeoutMs?: number | undefined;
  /** The clocks; for tests. */
  clock?: Clock | undefined;
}

/** The token is current, and the claim is neither completed nor expired. */
const HELD =
  'ichido_token = :token AND ichido_state IN (:running, :doubt) AND ichido_over_at > :now ' +
  'AND ichido_format IN (:format, :format_caller)';
const RENEW =
  'SET ichido_state = :running, ichido_renewed_at = :now, ichido_lease_ms = :lease, ' +
  'ichido_renewals = ichido_renewals + :one, ichido_over_at = :over ' +
  'REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text, #ttl';
const COMPLETE =
  'SET ichido_state = :done, ichido_completed_at = :now, ' +
  'ichido_over_at = ichido_retention_ms + :now, #ttl = ichido_retention_seconds + :seconds, ';
const DROP_DOUBT = ' REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text';

export class DynamoLedger implements Ledger {
  readonly table: Table;
  private readonly retry: RetrySettings;
  private readonly clock: Clock;
  private readonly watch = new LeaseWatch();

  constructor({ timeoutMs = 5_000, tryTimeoutMs = 1_500, clock = systemClock, ...table }: DynamoOptions = {}) {
    this.table = new Table(table);
    this.retry = { timeoutMs, tryTimeoutMs };
    this.clock = clock;
  }

  /** Marks an event. Returns the first mark, or nothing if the event is new. */
  async mark(request: MarkRequest): Promise<Seen | undefined> {
    const { value } = await retrying(this.retry, async (signal) => {
      const now = this.clock.now();
      const condition: Condition = {
        expression: 'attribute_not_exists(event_key) OR #ttl <= :now',
        values: { ':now': number(Math.floor(now / 1000)) },
      };
      const written = await this.table.put(encodeMark(request, now), condition, signal);
      if (written.applied) return undefined;
      if (written.found === undefined) throw contended();
      return readMark(written.found, request);
    });
    return value;
  }

  async claim(request: ClaimRequest): Promise<Claim> {
    return (await retrying(this.retry, (signal) => this.claimOnce(request, signal))).value;
  }

  async settle(key: Key, token: string, action: Action): Promise<Settled> {
    const { value, maybeApplied } = await retrying(this.retry, (signal) => this.settleOnce(key, token, action, signal));
    // The retry of a release that was applied finds no claim.
    const released = action.kind === 'release' && maybeApplied && !value.applied && value.now === 'absent';
    return released ? { applied: true } : value;
  }

  private async claimOnce(request: ClaimRequest, signal: AbortSignal): Promise<Claim> {
    const asked = { wall: this.clock.now(), steady: this.clock.steady() };
    const fresh = decideClaim(undefined, request, asked.wall);
    const written = await this.table.put(encodeClaim(fresh.write!), ABSENT, signal);
    if (written.applied) return this.granted(request, asked.wall, fresh.result);
    if (written.found === undefined) throw contended();

    const found = decodeClaim(written.found);
    const judgedAt = this.watch.judgedAt(found, asked, this.clock.steady());
    const decision = decideClaim(found, request, judgedAt);
    if (decision.write == null) return withoutKnownLease(decision.result);
    // The rules date a grant by the time of evaluation, which may come from the lease watch.
    const record = { ...decision.write, claimedAt: asked.wall, renewedAt: asked.wall };
    const replaced = await this.table.put(encodeClaim(record), unchanged(found), signal);
    if (!replaced.applied) throw contended();
    return this.granted(request, asked.wall, decision.result);
  }

  private granted(request: ClaimRequest, claimedAt: number, result: Claim): Claim {
    this.watch.observe(request.key, { token: request.token, claimedAt, renewals: 0 }, this.clock.steady());
    return result;
  }

  private async settleOnce(key: Key, token: string, action: Action, signal: AbortSignal): Promise<Settled> {
    const now = this.clock.now();
    const eventKey = claimKey(key);
    if (action.kind === 'doubt') return this.doubt(key, token, action, now, signal);
    const written =
      action.kind === 'release'
        ? await this.table.delete(eventKey, held(token, now), signal)
        : await this.table.update(eventKey, ...updating(token, action, now), signal);
    if (!written.applied) {
      const found = written.found && decodeClaim(written.found);
      const { result, write } = decideSettle(found, token, action, now);
      // It was refused, but would be accepted now: something changed in between.
      if (write !== undefined) throw contended();
      return result;
    }
    const renewals = action.kind === 'renew' ? renewalsOf(written.changed) : undefined;
    if (renewals === undefined) this.watch.forget(key);
    else this.watch.renewed(key, token, renewals, this.clock.steady());
    return { applied: true };
  }

  /** When a doubt began depends on the lease, so this is the one action that has to read first. */
  private async doubt(key: Key, token: string, action: Action, now: number, signal: AbortSignal): Promise<Settled> {
    const item = await this.table.get(claimKey(key), signal);
    const found = item && decodeClaim(item);
    const { result, write } = decideSettle(found, token, action, now);
    if (write == null || found === undefined) return result;
    const written = await this.table.put(encodeClaim(write), unchanged(found), signal);
    if (!written.applied) throw contended();
    return result;
  }
}

function contended(): ContendedError {
  return new ContendedError('a concurrent change interfered; retry');
}

/**
 * A grant that is returned again after a lost reply. Others may have watched it since it was written, so nobody knows what
 * is left of its lease, and its holder must renew it first.
 */
function withoutKnownLease(claim: Claim): Claim {
  return claim.kind === 'granted' ? { kind: 'granted', grant: { ...claim.grant, leftMs: 0 } } : claim;
}

/** The record is the one that was read. */
function unchanged(record: ClaimRecord): Condition {
  return {
    expression:
      'ichido_token = :token AND ichido_claimed_at = :claimed_at AND ichido_renewals = :renewals AND ichido_state = :state',
    values: {
      ':token': text(record.token),
      ':claimed_at': number(record.claimedAt),
      ':renewals': number(record.renewals),
      ':state': text(record.state.kind),
    },
  };
}

function held(token: string, now: number, more: Item = {}): Condition {
  return {
    expression: HELD,
    values: {
      ':token': text(token),
      ':running': text('running'),
      ':doubt': text('in-doubt'),
      ':now': number(now),
      ':format': { N: FORMATS[0] },
      ':format_caller': { N: FORMATS[1] },
      ...more,
    },
  };
}

type Update = Extract<Action, { kind: 'renew' | 'complete' }>;

function updating(token: string, action: Update, now: number): [update: string, condition: Condition] {
  if (action.kind === 'renew') {
    const over = now + action.leaseMs + DOUBT_RETENTION_MS;
    const values = { ':lease': number(action.leaseMs), ':one': number(1), ':over': number(over) };
    return [RENEW, held(token, now, values)];
  }
  const outcome: Outcome = fitting(action.outcome);
  const done = { ':done': text('done'), ':seconds': number(Math.ceil(now / 1000)) };
  if ('tombstone' in outcome) {
    const values = { ...done, ':tombstone': text(outcome.tombstone) };
    return [`${COMPLETE}ichido_tombstone = :tombstone${DROP_DOUBT}`, held(token, now, values)];
  }
  const values = { ...done, ':outcome': blob(outcome.kept), ':size': number(outcome.kept.length) };
  const update = `${COMPLETE}ichido_outcome = :outcome, ichido_outcome_bytes = :size${DROP_DOUBT}`;
  return [update, held(token, now, values)];
}

function renewalsOf(changed: Item): number | undefined {
  const renewals = changed['ichido_renewals'];
  return renewals && 'N' in renewals ? Number(renewals.N) : undefined;
}

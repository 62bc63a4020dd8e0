// Leases without a clock in the store.
//
// DynamoDB has no clock, and the wall clocks of two claimants may differ. So a lease is watched on the claimant's own
// steady clock: its holder counts as silent only when the same grant with the same number of renewals was seen for a full
// lease. A grant is identified by its token and the time it was written. The table is bounded; forgetting an entry
// restarts its watch, which may delay doubt but never hastens it.

import { claimIndex } from './digest.js';
import { expiresAt, type ClaimRecord, type Key } from './record.js';

const WATCHED_MAX = 65_536;

/** What an open claim looks like. While it looks the same, its holder is silent. */
type Sighting = Pick<ClaimRecord, 'token' | 'claimedAt' | 'renewals'>;

export interface Clock {
  /** The wall clock, in milliseconds since the epoch. It may jump. */
  now(): number;
  /** Milliseconds since a fixed moment. It never goes back. */
  steady(): number;
}

export const systemClock: Clock = { now: () => Date.now(), steady: () => performance.now() };

/** When a claim was requested, on both clocks, read before the call to the store. */
export interface AskedAt {
  wall: number;
  steady: number;
}

export class LeaseWatch {
  // A map keeps the order of insertion, so its first entry is the one that was used longest ago.
  private readonly entries = new Map<string, Sighting & { since: number }>();

  constructor(private readonly bound = WATCHED_MAX) {}

  /** Records what a claim looks like, and returns since when. `seen` is read after the store's reply. */
  observe(key: Key, { token, claimedAt, renewals }: Sighting, seen: number): number {
    const index = indexOf(key);
    const known = this.entries.get(index);
    const same = known?.token === token && known.claimedAt === claimedAt && known.renewals === renewals;
    const since = same ? known.since : seen;
    this.entries.delete(index);
    this.entries.set(index, { token, claimedAt, renewals, since });
    if (this.entries.size > this.bound) this.entries.delete(this.entries.keys().next().value!);
    return since;
  }

  /** Records a renewal of a watched grant. A grant that is not watched yet is watched from its next sighting. */
  renewed(key: Key, token: string, renewals: number, seen: number): void {
    const known = this.entries.get(indexOf(key));
    if (known?.token === token) this.observe(key, { ...known, renewals }, seen);
    else this.forget(key);
  }

  forget(key: Key): void {
    this.entries.delete(indexOf(key));
  }

  /**
   * The time by which to evaluate a record that was just read. An open claim is evaluated by its own last renewal plus the
   * silence that was watched, so that the error of neither clock moves a lease. The end of retention, and of doubt, is
   * evaluated by the wall clock.
   */
  judgedAt(record: ClaimRecord, asked: AskedAt, seen: number): number {
    if (record.state.kind === 'done') {
      this.forget(record.key);
      return asked.wall;
    }
    const since = this.observe(record.key, record, seen);
    // From after the first sighting to before the last: at most as long as the holder was silent.
    const silence = Math.max(0, Math.floor(asked.steady - since));
    const silent = silence >= record.leaseMs || record.state.kind === 'in-doubt';
    return silent && asked.wall >= expiresAt(record) ? asked.wall : record.renewedAt + silence;
  }
}

function indexOf({ tenant, route, text }: Key): string {
  return claimIndex(tenant, route, text);
}

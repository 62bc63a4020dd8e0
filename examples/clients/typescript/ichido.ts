// A small client for ichido's claim API. It needs only the fetch of Node 20 or later.
//
// `check` asks whether events are new, in one step; a crash after it loses the event. `once` runs work under a claim; a
// crash leaves the claim in doubt, where an operator finds it.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

/** Thrown by your work if it is certain that nothing happened. The key is released. */
export class NothingHappened extends Error {}
/** Nobody knows whether it happened. Do not retry: tell an operator, who resolves the claim. */
export class InDoubt extends Error {}
/** The key was used for something else before: a bug in how keys are generated. */
export class KeyReused extends Error {}
/** Another holder is running it and did not finish while we waited. Try again later. */
export class StillRunning extends Error {}
/** Another holder took over the claim while we worked. The work may have been done twice. */
export class Superseded extends Error {}
/** The API did not respond within the patience. Try again later, with the same key. */
export class Unavailable extends Error {}
/** The request is wrong; a retry will not help. */
export class Refused extends Error {}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface Event {
  key: string;
  metadata?: Record<string, string>;
}

export interface Result {
  key: string;
  /** If true, handle it; otherwise it was handled before. */
  is_new: boolean;
  /** The ledger is unavailable and the instance answered from its own memory; another may call the same event new. */
  degraded: boolean;
  reason?: string;
  first_seen?: string;
  metadata?: Record<string, string>;
}

export interface Options {
  /** Identifies the request, so that a key used for something else is detected. */
  fingerprint?: string;
  leaseMs?: number;
  /** How long to wait for the outcome of another holder. */
  waitMs?: number;
}

interface Reply {
  status: number;
  body: any;
  retryAfterMs: number | undefined;
}

export class Ichido {
  private readonly headers: Record<string, string> = { 'content-type': 'application/json' };

  constructor(
    private readonly url = 'http://127.0.0.1:8070',
    token?: string,
    private readonly patienceMs = 30_000,
  ) {
    if (token) this.headers['authorization'] = `Bearer ${token}`;
  }

  /** Checks events and returns a result for each, in order. */
  async check(events: Event[]): Promise<Result[]> {
    const withNonces = events.map((event) => ({ nonce: nonce(), ...event }));
    const { status, body } = await this.call('/v1/events/check', { events: withNonces });
    if (status !== 200) throw new Refused(body.detail);
    return body.results;
  }

  /** Runs `work` unless it was done before, and returns the first outcome in either case. */
  async once(key: string, work: () => Promise<Json>, options: Options = {}): Promise<Json> {
    const { fingerprint, leaseMs = 30_000, waitMs = 60_000 } = options;
    const claim = { key, nonce: nonce(), lease_ms: leaseMs, ...(fingerprint === undefined ? {} : { fingerprint }) };
    const deadline = Date.now() + waitMs;
    for (;;) {
      const { status, body, retryAfterMs = 1_000 } = await this.call('/v1/claims', claim);
      if (status === 201) {
        // The first response was lost, and part of the lease with it: make sure that we still hold the claim.
        if (body.left_ms !== undefined) await this.settle('renew', key, body.token, { lease_ms: leaseMs });
        return this.run(key, body.token, leaseMs, work);
      }
      if (status === 200) return body.outcome ?? null;
      switch (problem(body)) {
        case 'in-flight':
          break;
        case 'in-doubt':
          throw new InDoubt(key);
        case 'key-reused':
          throw new KeyReused(key);
        default:
          throw new Refused(body.detail);
      }
      if (Date.now() + retryAfterMs > deadline) throw new StillRunning(key);
      await sleep(retryAfterMs);
    }
  }

  private async run(key: string, token: string, leaseMs: number, work: () => Promise<Json>): Promise<Json> {
    // Renew every third of the lease. If the process crashes, the lease lapses and the claim is in doubt.
    const renew = () => this.try('/v1/claims/renew', JSON.stringify({ key, token, lease_ms: leaseMs }));
    const renewal = setInterval(renew, leaseMs / 3);
    try {
      let outcome: Json;
      try {
        outcome = await work();
      } catch (error) {
        if (error instanceof NothingHappened) {
          await this.settle('release', key, token);
          throw error;
        }
        // A timeout, a lost connection, a bug: it may have happened.
        await this.settle('doubt', key, token, { reason: String(error).slice(0, 500) });
        throw new InDoubt(key, { cause: error });
      }
      await this.settle('complete', key, token, { outcome });
      return outcome;
    } finally {
      clearInterval(renewal);
    }
  }

  private async settle(action: string, key: string, token: string, more: Record<string, Json> = {}): Promise<void> {
    const { status, body } = await this.call(`/v1/claims/${action}`, { key, token, ...more });
    // A release that is retried after a lost reply finds the key absent, as intended.
    const released = action === 'release' && body.state === 'absent';
    if (status === 409 && !released) throw new Superseded(key);
    if (status !== 200 && status !== 409) throw new Refused(body.detail);
  }

  /** Calls until there is a response. The body has a nonce or a token, so a retry is safe. */
  private async call(path: string, body: unknown): Promise<Reply> {
    const text = JSON.stringify(body);
    const deadline = Date.now() + this.patienceMs;
    for (let pause = 100; ; pause = Math.min(pause * 2, 5_000)) {
      const reply = await this.try(path, text);
      if (reply && reply.status !== 429 && reply.status !== 503) return reply;
      pause = Math.max(pause, reply?.retryAfterMs ?? 0);
      if (Date.now() + pause > deadline) throw new Unavailable(path);
      await sleep(pause);
    }
  }

  private async try(path: string, body: string): Promise<Reply | undefined> {
    try {
      const signal = AbortSignal.timeout(10_000);
      const response = await fetch(this.url + path, { method: 'POST', headers: this.headers, body, signal });
      const after = Number(response.headers.get('retry-after') ?? NaN);
      const retryAfterMs = Number.isNaN(after) ? undefined : after * 1000;
      return { status: response.status, body: await response.json(), retryAfterMs };
    } catch {
      return undefined;
    }
  }
}

function nonce(): string {
  return randomBytes(16).toString('hex');
}

/** The last segment of a problem's type. */
function problem(body: { type?: string }): string {
  return body.type?.split('/').pop() ?? '';
}

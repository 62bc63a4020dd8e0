// A small client of ichido's claim API. It needs nothing but the fetch of Node 20 or later.
//
// Two forms. `check` asks whether events are new, in one step; a crash after it loses the event. `once` runs a piece
// of work under a claim; a crash leaves the claim in doubt, where a person finds it.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

/** Thrown by your work when it is certain that nothing happened. The key is free again. */
export class NothingHappened extends Error {}
/** Nobody knows whether it happened. Do not do it again: tell a person, who looks and resolves the claim. */
export class InDoubt extends Error {}
/** The key was used for something else before: a bug in how keys are made. */
export class KeyReused extends Error {}
/** Another holder runs it, and did not finish while we waited. Ask again later. */
export class StillRunning extends Error {}
/** The claim was taken from us while we worked. What we did may have been done by another as well. */
export class Superseded extends Error {}
/** No answer for as long as we had patience. Ask again later, with the same key. */
export class Unavailable extends Error {}
/** The request is wrong; asking again will not help. */
export class Refused extends Error {}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface Event {
  key: string;
  metadata?: Record<string, string>;
}

export interface Result {
  key: string;
  /** Handle it; else it was handled before. */
  is_new: boolean;
  /** The ledger is out, and this instance answered from its own memory; another may call the same event new. */
  degraded: boolean;
  reason?: string;
  first_seen?: string;
  metadata?: Record<string, string>;
}

export interface Options {
  /** Says what was asked for, so that a key which is used for something else is noticed. */
  fingerprint?: string;
  leaseMs?: number;
  /** How long to wait for another holder's outcome. */
  waitMs?: number;
}

interface Answer {
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

  /** Asks about events: a result for each, in order. */
  async check(events: Event[]): Promise<Result[]> {
    const named = events.map((event) => ({ nonce: nonce(), ...event }));
    const { status, body } = await this.ask('/v1/events/check', { events: named });
    if (status !== 200) throw new Refused(body.detail);
    return body.results;
  }

  /** Runs `work` unless it was done before, and returns its outcome, the first one in either case. */
  async once(key: string, work: () => Promise<Json>, options: Options = {}): Promise<Json> {
    const { fingerprint, leaseMs = 30_000, waitMs = 60_000 } = options;
    const claim = { key, nonce: nonce(), lease_ms: leaseMs, ...(fingerprint === undefined ? {} : { fingerprint }) };
    const deadline = Date.now() + waitMs;
    for (;;) {
      const { status, body, retryAfterMs = 1_000 } = await this.ask('/v1/claims', claim);
      if (status === 201) {
        // The first answer got lost, and part of the lease with it: make sure that we still hold the claim.
        if (body.left_ms !== undefined) await this.settle('renew', key, body.token, { lease_ms: leaseMs });
        return this.run(key, body.token, leaseMs, work);
      }
      if (status === 200) return body.outcome ?? null;
      switch (word(body)) {
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
    // We say every third of the lease that we are still at work. If we die, nobody does, and the claim is in doubt.
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
        // A timeout, a cut connection, a bug: it may have happened. Whoever knows better says so.
        await this.settle('doubt', key, token, { reason: String(error).slice(0, 500) });
        throw new InDoubt(key, { cause: error });
      }
      await this.settle('complete', key, token, { outcome });
      return outcome;
    } finally {
      clearInterval(renewal);
    }
  }

  private async settle(word: string, key: string, token: string, more: Record<string, Json> = {}): Promise<void> {
    const { status, body } = await this.ask(`/v1/claims/${word}`, { key, token, ...more });
    // A release that is asked again after a lost reply finds nothing, and that is what was wanted.
    const released = word === 'release' && body.state === 'absent';
    if (status === 409 && !released) throw new Superseded(key);
    if (status !== 200 && status !== 409) throw new Refused(body.detail);
  }

  /** Asks until there is an answer. Nonce and token are in the body, so asking again is safe. */
  private async ask(path: string, body: unknown): Promise<Answer> {
    const text = JSON.stringify(body);
    const deadline = Date.now() + this.patienceMs;
    for (let pause = 100; ; pause = Math.min(pause * 2, 5_000)) {
      const answer = await this.try(path, text);
      if (answer && answer.status !== 429 && answer.status !== 503) return answer;
      pause = Math.max(pause, answer?.retryAfterMs ?? 0);
      if (Date.now() + pause > deadline) throw new Unavailable(path);
      await sleep(pause);
    }
  }

  private async try(path: string, body: string): Promise<Answer | undefined> {
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
function word(problem: { type?: string }): string {
  return problem.type?.split('/').pop() ?? '';
}

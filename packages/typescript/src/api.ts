// A ledger of claims, reached through the claim API of an ichido process.

import {
  InvalidInputError,
  OlderServerError,
  RefusedError,
  TokenRefusedError,
  UnreachableError,
  type IchidoError,
} from './errors.js';
import type { Ledger } from './ledger.js';
import type { Action, Claim, ClaimRequest, CurrentState, Key, Settled } from './record.js';
import { retryAfterMs, retrying, type RetrySettings } from './retry.js';

export interface ApiOptions {
  /** The address of the claim API, such as http://127.0.0.1:8070. */
  api: string;
  /** The admin token of the server, if it has one. */
  token?: string | undefined;
  /** How long a call may take, including all tries. Default: 10,000. */
  timeoutMs?: number | undefined;
}

const TRY_TIMEOUT_MS = 5_000;

interface Reply {
  status: number;
  body: any;
  retryAfterMs: number | undefined;
}

/** What the claim API itself needs to know of a request; the rest is decided by the server. */
export type ApiClaimRequest = ClaimRequest & { fingerprintText?: string | undefined };

export class ApiLedger implements Ledger {
  private readonly base: string;
  private readonly headers: Record<string, string> = { 'content-type': 'application/json' };
  private readonly retry: RetrySettings;

  constructor({ api, token, timeoutMs = 10_000 }: ApiOptions) {
    this.base = checkAddress(api);
    if (token !== undefined) this.headers['authorization'] = `Bearer ${token}`;
    this.retry = { timeoutMs, tryTimeoutMs: Math.min(TRY_TIMEOUT_MS, timeoutMs) };
  }

  async claim(request: ApiClaimRequest): Promise<Claim> {
    const { key, nonce, leaseMs, retentionMs, metadata, fingerprintText } = request;
    const { reply } = await this.call('/v1/claims', {
      key: key.text,
      nonce,
      lease_ms: leaseMs,
      retention_seconds: Math.ceil(retentionMs / 1000),
      ...(Object.keys(metadata).length > 0 ? { metadata } : {}),
      ...(fingerprintText === undefined ? {} : { fingerprint: fingerprintText }),
    });
    const { status, body } = reply;
    if (status === 201) {
      const { token, attempt, left_ms: leftMs = leaseMs, degraded = false } = body;
      return { kind: 'granted', grant: { token, attempt, leaseMs, leftMs, degraded } };
    }
    if (status === 200) {
      const tombstone = body.outcome_not_kept;
      if (tombstone !== undefined) return { kind: 'done', outcome: { tombstone } };
      return { kind: 'done', outcome: { kept: Buffer.from(JSON.stringify(body.outcome ?? null)) } };
    }
    switch (problem(body)) {
      case 'in-flight':
        return { kind: 'held', retryAfterMs: body.retry_after_ms ?? reply.retryAfterMs ?? 1_000 };
      case 'in-doubt': {
        const reason = { kind: 'declared', text: String(body.doubt_reason ?? body.detail) } as const;
        return { kind: 'in-doubt', doubt: { since: Date.parse(body.doubt_since) || 0, reason } };
      }
      case 'key-reused':
        return { kind: 'mismatch' };
      default:
        throw await this.refusal(reply, '/v1/claims');
    }
  }

  async settle(key: Key, token: string, action: Action): Promise<Settled> {
    const path = `/v1/claims/${action.kind}`;
    const { reply, maybeApplied } = await this.call(path, { key: key.text, token, ...payload(action) });
    if (reply.status === 200) return { applied: true };
    if (problem(reply.body) !== 'stale-token') throw await this.refusal(reply, path);
    const now: CurrentState = reply.body.state;
    // The retry of a release that was applied finds no claim.
    return action.kind === 'release' && maybeApplied && now === 'absent' ? { applied: true } : { applied: false, now };
  }

  /** Calls until there is an answer. The body has a nonce or a token, so a retry is safe. */
  private async call(path: string, body: unknown): Promise<{ reply: Reply; maybeApplied: boolean }> {
    const text = JSON.stringify(body);
    let pause: number | undefined;
    const attempt = async (signal: AbortSignal): Promise<Reply> => {
      pause = undefined;
      const reply = await this.send(path, text, signal);
      if (reply.status !== 503 && reply.status !== 429) return reply;
      pause = reply.retryAfterMs;
      const detail = reply.body?.detail ?? `status ${reply.status}`;
      throw new UnreachableError(`ichido at ${this.base} cannot use its ledger: ${detail}`);
    };
    const { value, maybeApplied } = await retrying(this.retry, attempt, () => pause);
    return { reply: value, maybeApplied };
  }

  private async send(path: string, body: string, signal: AbortSignal): Promise<Reply> {
    try {
      const response = await fetch(this.base + path, { method: 'POST', headers: this.headers, body, signal });
      const text = await response.text();
      return {
        status: response.status,
        body: parse(text),
        retryAfterMs: retryAfterMs(response.headers.get('retry-after')),
      };
    } catch (cause) {
      const refused = (cause as { cause?: { code?: string } }).cause?.code === 'ECONNREFUSED';
      const message = `no ichido server answers at ${this.base}; start \`ichido claims\`, or correct the address`;
      throw new UnreachableError(message, { cause, effect: refused ? 'none' : 'unknown' });
    }
  }

  /** The error for a reply that is no result. */
  private async refusal({ status, body }: Reply, path: string): Promise<IchidoError> {
    const detail: string = body?.detail ?? body?.title ?? `status ${status}`;
    if (status === 401) {
      const what = this.headers['authorization'] === undefined ? 'needs a token' : 'does not accept the token';
      return new TokenRefusedError(`ichido at ${this.base} ${what}; pass the value of its ICHIDO_ADMIN_TOKEN as \`token\``);
    }
    if (status === 403) return new TokenRefusedError(`ichido at ${this.base} refuses this caller: ${detail}`);
    if (body === undefined || status === 404 || status === 405 || /unknown field/.test(detail)) {
      const version = await this.version();
      const what = version === undefined ? 'it does not answer like ichido' : `its version is ${version}`;
      return new OlderServerError(
        `the server at ${this.base} does not know this call of ${path} (${what}); update ichido, or correct the address`,
      );
    }
    if (status < 500) return new InvalidInputError(`ichido at ${this.base} refused the call: ${detail}`);
    return new RefusedError(`the ledger of ichido at ${this.base} failed: ${detail}`, { effect: 'unknown' });
  }

  private async version(): Promise<string | undefined> {
    try {
      const signal = AbortSignal.timeout(this.retry.tryTimeoutMs);
      const response = await fetch(`${this.base}/openapi.json`, { headers: this.headers, signal });
      const version = parse(await response.text())?.info?.version;
      return typeof version === 'string' ? version : undefined;
    } catch {
      return undefined;
    }
  }
}

function payload(action: Action): Record<string, unknown> {
  switch (action.kind) {
    case 'renew':
      return { lease_ms: action.leaseMs };
    case 'complete': {
      // The API has no tombstones: an outcome that cannot be kept is null.
      const { outcome } = action;
      return { outcome: 'kept' in outcome ? JSON.parse(Buffer.from(outcome.kept).toString()) : null };
    }
    case 'release':
      return {};
    case 'doubt':
      return { reason: action.reason };
  }
}

/** Only http and https; credentials in the address would end up in messages. */
function checkAddress(api: string): string {
  const url = URL.canParse(api) ? new URL(api) : undefined;
  if (!url || !['http:', 'https:'].includes(url.protocol)) {
    throw new InvalidInputError('api must be an address such as http://127.0.0.1:8070');
  }
  if (url.username || url.password) {
    throw new InvalidInputError('api must not contain credentials; pass the token as `token`');
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The last segment of a problem's type. */
export function problem(body: any): string {
  return typeof body?.type === 'string' ? (body.type.split('/').pop() ?? '') : '';
}

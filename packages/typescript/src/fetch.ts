// Sends a request with an Idempotency-Key, and retries it safely: the same key, the same bytes and the same headers each time.

import { randomUUID } from 'node:crypto';

import { problem } from './api.js';
import {
  CallerChangedError,
  IchidoError,
  InDoubtError,
  InFlightError,
  InvalidInputError,
  KeyReusedError,
  OutcomeNotKeptError,
  UnreachableError,
} from './errors.js';
import { jitter, retryAfterMs, sleep } from './retry.js';

export interface IdempotentFetchOptions {
  /**
   * The key of the operation, 1 to 255 characters of visible ASCII. Default: a new UUID for POST and PATCH; other methods
   * may be repeated anyway, and get no key. Generate and store it yourself if the operation can outlive this process, or if
   * your own code retries this call.
   */
  key?: string | undefined;
  /** How many times the request is sent at most. Default: 8. Waiting for a request in flight does not count. */
  attempts?: number | undefined;
  /** How long to go on, including all waits. Default: 60,000. */
  patienceMs?: number | undefined;
  /** How long to wait for one response. Default: 30,000. */
  timeoutMs?: number | undefined;
  /** The first pause; it doubles, up to 10 s. Default: 200. */
  backoffMs?: number | undefined;
  /** Called before each pause. */
  onRetry?: ((retry: { attempt: number; waitMs: number; reason: string; key: string | undefined }) => void) | undefined;
  /** The fetch to use. Default: that of Node. */
  fetch?: typeof fetch | undefined;
}

const PAUSE_MAX_MS = 10_000;
/** Methods that get a key: repeated, they may take effect twice. */
const KEYED = ['POST', 'PATCH'];
/** Methods that change nothing. */
const SAFE = ['GET', 'HEAD', 'OPTIONS'];
/** Statuses that say: not now. */
const RETRIED = [408, 425, 429, 502, 503, 504];
/** Problems of ichido after which the same request may be sent again. */
const RETRIED_PROBLEMS = [
  'in-flight',
  'body-broken',
  'body-too-slow',
  'upstream-unreachable',
  'answer-lost',
  'upstream-timeout',
  'ledger-unavailable',
  'overloaded',
  'handler-failed',
];

/**
 * Like `fetch`, but an operation is done once. Returns the response, also one that reports an error of the API. Throws
 * a typed error if the outcome is in doubt, the key is unusable, or no response came; it has the `key`, to go on later.
 */
export async function idempotentFetch(
  url: string | URL | Request,
  init: RequestInit = {},
  options: IdempotentFetchOptions = {},
): Promise<Response> {
  const { attempts = 8, patienceMs = 60_000, timeoutMs = 30_000, backoffMs = 200, onRetry } = options;
  const send = options.fetch ?? fetch;
  const prepared = await prepare(url, init, options.key);
  const { key, target, request, signal } = prepared;
  const deadline = performance.now() + patienceMs;
  let sent = 0;
  let pause = backoffMs;
  for (;;) {
    signal?.throwIfAborted();
    sent += 1;
    const left = Math.max(1, Math.min(timeoutMs, deadline - performance.now()));
    const timeout = AbortSignal.timeout(Math.ceil(left));
    const ends = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
    let reply: Response | IchidoError;
    try {
      reply = await send(target, { ...request, signal: ends });
    } catch (cause) {
      // The caller gave up; the operation may still happen.
      signal?.throwIfAborted();
      const effect = key === undefined && SAFE.includes(request.method ?? '') ? 'none' : 'unknown';
      const advice = key === undefined ? 'send it again' : 'it may have taken effect; send it again with the same key';
      reply = new UnreachableError(`no response from ${target.origin}; ${advice}`, { cause, effect });
    }
    const verdict = await judge(reply);
    if (verdict.kind === 'return') return verdict.response;
    if (verdict.kind === 'throw') throw withKey(verdict.error, key, reply);
    const wait = Math.max(verdict.waitMs ?? 0, jitter(pause));
    if (verdict.inFlight) sent -= 1;
    if (sent >= attempts || performance.now() + wait >= deadline) {
      if (verdict.inFlight) {
        const message = 'the first request is still running; send it again later, with the same key';
        throw withKey(new InFlightError(message, wait), key, reply);
      }
      if (reply instanceof IchidoError) throw withKey(reply, key, undefined);
      return reply;
    }
    onRetry?.({ attempt: sent, waitMs: wait, reason: verdict.reason, key });
    // The body of a response that is not returned must be released.
    if (!(reply instanceof IchidoError)) await reply.body?.cancel().catch(() => undefined);
    await sleep(wait, signal);
    pause = Math.min(pause * 2, PAUSE_MAX_MS);
  }
}

interface Prepared {
  key: string | undefined;
  target: URL;
  request: RequestInit;
  signal: AbortSignal | undefined;
}

/** Reads the request once. A form has a new boundary, and a stream no bytes left, each time that it is sent. */
async function prepare(url: string | URL | Request, init: RequestInit, given: string | undefined): Promise<Prepared> {
  let request: Request;
  try {
    const isStream = typeof (init.body as { getReader?: unknown } | null)?.getReader === 'function';
    request = new Request(url, isStream ? ({ ...init, duplex: 'half' } as RequestInit) : init);
  } catch (cause) {
    throw new InvalidInputError(`the request is invalid: ${(cause as Error).message}`, { cause });
  }
  const { method, redirect } = request;
  const headers = new Headers(request.headers);
  const own = headers.get('idempotency-key');
  if (own !== null && given !== undefined) {
    throw new InvalidInputError('pass the key as `key` or in the header Idempotency-Key, not both');
  }
  const key = own ?? given ?? (KEYED.includes(method) ? randomUUID() : undefined);
  if (own === null && key !== undefined) headers.set('idempotency-key', quoted(key));
  const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
  const signal = init.signal ?? (url instanceof Request ? url.signal : undefined);
  const { body: _, signal: __, ...rest } = init;
  return {
    key,
    target: new URL(request.url),
    request: { ...rest, method, headers, redirect, ...(body === undefined ? {} : { body }) },
    signal,
  };
}

/** A structured-field String. */
function quoted(key: string): string {
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) throw new InvalidInputError('key must have 1 to 255 characters of visible ASCII');
  return `"${key.replace(/["\\]/g, '\\$&')}"`;
}

type Verdict =
  | { kind: 'return'; response: Response }
  | { kind: 'throw'; error: IchidoError }
  | { kind: 'retry'; reason: string; waitMs?: number | undefined; inFlight?: boolean };

async function judge(reply: Response | IchidoError): Promise<Verdict> {
  if (reply instanceof IchidoError) return { kind: 'retry', reason: reply.message };
  const { status, headers } = reply;
  const replayed = headers.get('idempotency-replayed') ?? headers.get('idempotent-replayed');
  // A replay is the final answer, whatever its status.
  if (status < 400 || replayed === 'true') return { kind: 'return', response: reply };
  const waitMs = retryAfterMs(headers.get('retry-after'));
  const body = await problemOf(reply);
  const code = problem(body);
  const error = errorOf(code, String(body?.detail ?? body?.title ?? ''), waitMs !== undefined);
  if (error !== undefined) return { kind: 'throw', error };
  if (RETRIED_PROBLEMS.includes(code)) return { kind: 'retry', reason: code, waitMs, inFlight: code === 'in-flight' };
  // Other servers with keys: a conflict that names a time is a request in flight.
  if (status === 409 && waitMs !== undefined) return { kind: 'retry', reason: 'status 409', waitMs, inFlight: true };
  const should = headers.get('x-should-retry') ?? headers.get('stripe-should-retry');
  const retries = should === null ? RETRIED.includes(status) : should === 'true';
  return retries ? { kind: 'retry', reason: `status ${status}`, waitMs } : { kind: 'return', response: reply };
}

/** The problem in a response, which stays readable for the caller. */
async function problemOf(response: Response): Promise<any> {
  if (!response.headers.get('content-type')?.startsWith('application/problem+json')) return undefined;
  return response.clone().json().catch(() => undefined);
}

function errorOf(code: string, detail: string, invitesRetry: boolean): IchidoError | undefined {
  switch (code) {
    case 'in-doubt':
      // A route that runs such requests again sends Retry-After.
      if (invitesRetry) return undefined;
      return new InDoubtError(`it may have taken effect: ${detail} Do not use a new key; look the operation up`);
    case 'answer-not-kept':
      return new OutcomeNotKeptError(`it was done, but its response was not kept: ${detail} Look up what it did`);
    case 'key-reused':
      return new KeyReusedError(`the key belongs to another request: ${detail} Use a new key for a new operation`);
    case 'caller-changed':
      return new CallerChangedError(`the key was used with other credentials: ${detail}`);
    default:
      return undefined;
  }
}

/** The key and the response, for whoever handles the error. */
function withKey(error: IchidoError, key: string | undefined, reply: Response | IchidoError | undefined): IchidoError {
  return Object.assign(error, { key, response: reply instanceof IchidoError ? undefined : reply });
}

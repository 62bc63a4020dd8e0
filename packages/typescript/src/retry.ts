// Waiting, backoff, and calls that are retried until a deadline.

import { codeOf, IchidoError } from './errors.js';

export interface RetrySettings {
  /** How long a call may take, including all tries. */
  timeoutMs: number;
  /** How long one try may take. A lost reply is noticed, and the call retried, after this time. */
  tryTimeoutMs: number;
}

const PAUSE_MS = { first: 25, longest: 1_000 };
/**
 * A try that begins with less time than this is not worth it: if the deadline cuts it off, an effect that certainly did
 * not happen becomes one that nobody knows. At most a quarter of the whole time.
 */
const LAST_TRY_MS = 500;

/** Between half of a pause and all of it, so that callers that failed together do not come back together. */
export function jitter(ms: number): number {
  return ms * (0.5 + Math.random() / 2);
}

/** Waits. Rejects with the signal's reason if it is aborted. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}

/** The pause that a `Retry-After` header asks for: seconds, or a date. */
export function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\s*\d+\s*$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

export interface Answer<T> {
  value: T;
  /** Whether an earlier try of the same call may have been applied. */
  maybeApplied: boolean;
}

/**
 * Calls until there is an answer, the error is permanent, or the time is up. Every call can be retried: claims and marks
 * carry a nonce, settlements a token. `call` gets a signal that ends its try, and throws an `IchidoError`.
 */
export async function retrying<T>(
  { timeoutMs, tryTimeoutMs }: RetrySettings,
  call: (signal: AbortSignal) => Promise<T>,
  pauseFor: (error: unknown) => number | undefined = () => undefined,
): Promise<Answer<T>> {
  const deadline = performance.now() + timeoutMs;
  const lastStart = deadline - Math.min(LAST_TRY_MS, timeoutMs / 4);
  let maybeApplied = false;
  for (let pause = PAUSE_MS.first; ; pause = Math.min(pause * 2, PAUSE_MS.longest)) {
    const limit = Math.ceil(Math.max(1, Math.min(tryTimeoutMs, deadline - performance.now())));
    try {
      return { value: await call(AbortSignal.timeout(limit)), maybeApplied };
    } catch (error) {
      if (!(error instanceof IchidoError)) throw error;
      maybeApplied ||= error.effect === 'unknown';
      // A concurrent change is over soon; an outage is not.
      const wait = pauseFor(error) ?? jitter(codeOf(error) === 'contended' ? pause / 16 : pause);
      if (!error.transient || performance.now() + wait >= lastStart) {
        if (maybeApplied) Object.assign(error, { effect: 'unknown' });
        throw error;
      }
      await sleep(wait);
    }
  }
}

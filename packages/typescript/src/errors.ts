// The errors of this package. Each has a `code` that survives two copies of the package in one process (ES module and
// CommonJS), where `instanceof` does not, and an `effect`: whether the operation may have happened all the same.

/** Whether the operation happened: certainly not, nobody knows, or certainly. */
export type Effect = 'none' | 'unknown' | 'done';

export interface ErrorDetails {
  cause?: unknown;
  effect?: Effect;
}

export abstract class IchidoError extends Error {
  abstract readonly code: string;
  /** Whether the operation may have happened all the same. */
  readonly effect: Effect;
  /** Whether the same call may succeed if it is retried soon. */
  readonly transient: boolean = false;

  constructor(message: string, { cause, effect = 'none' }: ErrorDetails = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.effect = effect;
  }
}

/** Throw this from your work if it certainly had no effect. The key is released, and the next call may run it. */
export class NothingHappened extends IchidoError {
  readonly code = 'nothing-happened';
}

/** Nobody knows whether the effect happened. Do not retry with a new key: look it up, or let an operator resolve it. */
export class InDoubtError extends IchidoError {
  readonly code = 'in-doubt';
  constructor(message: string, { effect = 'unknown', ...details }: ErrorDetails = {}) {
    super(message, { effect, ...details });
  }
}

/** The key was used for a different request: a bug in how keys are generated. */
export class KeyReusedError extends IchidoError {
  readonly code = 'key-reused';
}

/** The key was used with other credentials. Nothing was run. */
export class CallerChangedError extends IchidoError {
  readonly code = 'caller-changed';
}

/** Another holder is still running it. Try again later, with the same key. */
export class InFlightError extends IchidoError {
  readonly code = 'in-flight';
  override readonly transient = true;
  constructor(
    message: string,
    readonly retryAfterMs: number,
  ) {
    super(message);
  }
}

/** The effect happened, but its outcome was not kept. Look up what it did. */
export class OutcomeNotKeptError extends IchidoError {
  readonly code = 'outcome-not-kept';
  constructor(message: string) {
    super(message, { effect: 'done' });
  }
}

/**
 * The claim was taken over, settled or released while the work ran, for example because the process was frozen for longer
 * than its lease. `value` is the result of this run, if it finished; the effect may have happened twice.
 */
export class LeaseLostError extends IchidoError {
  readonly code = 'lease-lost';
  constructor(
    message: string,
    readonly value: unknown,
    cause?: unknown,
  ) {
    super(message, { effect: 'unknown', cause });
  }
}

/** The work ran, but its outcome could not be recorded. `value` is the result; the claim becomes in doubt. */
export class UnrecordedError extends IchidoError {
  readonly code = 'unrecorded';
  constructor(
    message: string,
    readonly value: unknown,
    details: ErrorDetails,
  ) {
    super(message, details);
  }
}

/** No server answers, or it does not answer in time. */
export class UnreachableError extends IchidoError {
  readonly code = 'unreachable';
  override readonly transient = true;
}

/** DynamoDB asks to slow down, and did so until the deadline. */
export class ThrottledError extends IchidoError {
  readonly code = 'throttled';
  override readonly transient = true;
}

/** A concurrent change interfered. */
export class ContendedError extends IchidoError {
  readonly code = 'contended';
  override readonly transient = true;
}

/** The table does not exist. */
export class TableMissingError extends IchidoError {
  readonly code = 'table-missing';
}

/** The credentials are missing, or do not allow the call. */
export class PermissionDeniedError extends IchidoError {
  readonly code = 'permission-denied';
}

/** The claim API did not accept the token. */
export class TokenRefusedError extends IchidoError {
  readonly code = 'token-refused';
}

/** The memory of the fallback is full, and it forgets no event that the table does not have yet. Let the sender retry. */
export class FallbackFullError extends IchidoError {
  readonly code = 'fallback-full';
}

/** The server is older than this package needs, or it is not ichido. */
export class OlderServerError extends IchidoError {
  readonly code = 'older-server';
}

/** The clock of this machine is wrong, so nothing was sent: expiry is judged by it. */
export class ClockSkewError extends IchidoError {
  readonly code = 'clock-skew';
  constructor(
    message: string,
    readonly skewMs: number,
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}

/** An item of the table is damaged, or of a format that this version does not know. */
export class ItemError extends IchidoError {
  readonly code = 'item';
}

/** The server refused the call, and a retry will not help. */
export class RefusedError extends IchidoError {
  readonly code = 'refused';
}

/** An argument is outside its limits. Nothing was sent. */
export class InvalidInputError extends IchidoError {
  readonly code = 'invalid-input';
}

/** A package that this call needs is not installed. */
export class MissingPackageError extends IchidoError {
  readonly code = 'missing-package';
}

/** Whether an error is a certain declaration of the work that nothing happened, also from another copy of this package. */
export function isNothingHappened(error: unknown): boolean {
  return codeOf(error) === 'nothing-happened';
}

/** The code of an error of this package. */
export function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === 'string' ? code : undefined;
}

// Event deduplication in one step: is this event new? The mark and the answer are one conditional write.
//
// A crash between the answer and the work loses the event. If that is not good enough, use `once`.

import { randomId } from './digest.js';
import { codeOf, FallbackFullError } from './errors.js';
import { DynamoLedger, type DynamoOptions } from './ledger.js';
import { encodeMark, type MarkRequest } from './item.js';
import { checkCount, checkText, KEY_BYTES, RETENTION_SECONDS } from './limits.js';
import { systemClock, type Clock } from './lease-watch.js';

export interface DeduplicationResult {
  /** If true, handle the event; otherwise it was handled before. */
  isNew: boolean;
  /** Why it is not new. */
  reason?: string;
  /** Whether this process answered from its own memory: another instance may call the same event new. */
  degraded?: boolean;
}

export interface EventDeduplicationOptions extends DynamoOptions {
  /** How long an event is remembered. Default: 6. */
  ttlHours?: number | undefined;
}

const HOUR_MS = 3_600_000;

/** Tells new events from duplicates, across all instances that share the table. */
export class EventDeduplicationService {
  readonly tableName: string;
  ttlHours: number;
  private readonly ledger: DynamoLedger;

  constructor({ ttlHours = 6, ...options }: EventDeduplicationOptions = {}) {
    this.ledger = new DynamoLedger(options);
    this.tableName = this.ledger.table.name;
    this.ttlHours = ttlHours;
  }

  /** Marks the event, and says whether it is new. `metadata` is stored with it. */
  async checkAndMarkProcessed(eventKey: string, metadata: Record<string, unknown> = {}): Promise<DeduplicationResult> {
    return this.check(this.request(eventKey, metadata));
  }

  /** A request with a nonce of its own: after a lost reply, the same request is new again. */
  request(eventKey: string, metadata: Record<string, unknown>): MarkRequest {
    checkText('eventKey', eventKey, KEY_BYTES);
    const retentionMs = checkCount('ttlHours, in milliseconds,', Math.round(this.ttlHours * HOUR_MS), RETENTION_SECONDS * 1000);
    const request = { key: eventKey, nonce: randomId(), retentionMs, metadata };
    // Refuses what the table cannot store, also during an outage.
    encodeMark(request, 0);
    return request;
  }

  async check(request: MarkRequest): Promise<DeduplicationResult> {
    const seen = await this.ledger.mark(request);
    return seen === undefined ? { isNew: true } : { isNew: false, reason: 'Already processed by another instance' };
  }
}

export interface Fallback {
  /** Why the table cannot be used. */
  error: Error;
  /** When it is tried again, in milliseconds since the epoch. */
  retryAt: number;
}

/** `timeoutMs`, how long the table may take before the memory answers, is 2,000 by default here. */
export interface HybridDeduplicationOptions extends EventDeduplicationOptions {
  /**
   * How many events the memory holds. Events that the table has as well make room, the oldest first. If there are none
   * during an outage, the call fails with `fallback-full`. Default: 10,000.
   */
  maxEntries?: number | undefined;
  /** How long to use the memory before the table is tried again. Default: 60,000. */
  retryAfterMs?: number | undefined;
  /** Called when an outage begins, and again when the table was tried and still fails. */
  onFallback?: ((fallback: Fallback) => void) | undefined;
  /** Where outages and recoveries are logged. Default: console. */
  logger?: Pick<Console, 'warn' | 'info'> | undefined;
}

interface Remembered {
  request: MarkRequest;
  expiresAt: number;
  /** Whether the table does not have it yet. */
  pending: boolean;
  /** Whether it is being written to the table. */
  handing: boolean;
}

/** Outages that the memory bridges. A missing permission is not one: it does not end by itself. */
const OUTAGES = ['unreachable', 'throttled', 'contended', 'table-missing'];
/** Slack hangs up after three seconds, so the memory must answer before. */
const TIMEOUT_MS = 2_000;
/** How many marks are handed over with each call after an outage. */
const HANDOVER = 10;

/**
 * The same, but answers from the memory of this process while the table is unavailable. Such results have
 * `degraded: true`. After an outage, the events that were accepted meanwhile are written to the table.
 */
export class HybridDeduplicationService {
  readonly dynamoService: EventDeduplicationService;
  /** Events that another instance accepted as well during an outage. */
  conflicts = 0;
  /** What this process accepted, oldest first. What the table does not have yet is never forgotten before it expires. */
  private readonly memory = new Map<string, Remembered>();
  private readonly turns = new Map<string, Promise<void>>();
  private readonly maxEntries: number;
  private readonly retryAfterMs: number;
  private readonly onFallback: ((fallback: Fallback) => void) | undefined;
  private readonly logger: Pick<Console, 'warn' | 'info'>;
  private readonly clock: Clock;
  /** On the steady clock, which a freeze or a wrong clock does not move back. */
  private retryAt: number | undefined;
  private outage: Error | undefined;

  constructor(options: HybridDeduplicationOptions = {}) {
    const { maxEntries = 10_000, retryAfterMs = 60_000, onFallback, logger = console, ...service } = options;
    this.dynamoService = new EventDeduplicationService({ ...service, timeoutMs: service.timeoutMs ?? TIMEOUT_MS });
    this.maxEntries = maxEntries;
    this.retryAfterMs = retryAfterMs;
    this.onFallback = onFallback;
    this.logger = logger;
    this.clock = service.clock ?? systemClock;
  }

  /** Whether the memory answers at the moment. */
  get useFallback(): boolean {
    return this.retryAt !== undefined && this.clock.steady() < this.retryAt;
  }

  /** How many events the memory holds. */
  get remembered(): number {
    return this.memory.size;
  }

  async checkAndMarkProcessed(eventKey: string, metadata: Record<string, unknown> = {}): Promise<DeduplicationResult> {
    const request = this.dynamoService.request(eventKey, metadata);
    // Calls for one event take turns: if one of them falls back, the other must know what it accepted.
    const turn = (this.turns.get(eventKey) ?? Promise.resolve()).then(() => this.check(request));
    const quiet = turn.then(
      () => undefined,
      () => undefined,
    );
    this.turns.set(eventKey, quiet);
    try {
      return await turn;
    } finally {
      if (this.turns.get(eventKey) === quiet) this.turns.delete(eventKey);
    }
  }

  private async check(request: MarkRequest): Promise<DeduplicationResult> {
    this.dropExpired();
    // An event that was accepted during an outage stays accepted, also before it is handed over.
    if (this.memory.get(request.key)?.pending) return this.inMemory();
    if (!this.useFallback) {
      try {
        const [result] = await Promise.all([this.dynamoService.check(request), this.handOver()]);
        this.recovered();
        if (result.isNew && this.makeRoom()) this.remember(request, false);
        return { ...result, degraded: false };
      } catch (error) {
        if (!OUTAGES.includes(codeOf(error) ?? '')) throw error;
        this.fallBack(error as Error);
      }
    }
    if (this.memory.has(request.key)) return this.inMemory();
    if (!this.makeRoom()) {
      const full = `the table is unavailable and the memory fallback is full (${this.maxEntries} events)`;
      const message = `${full}; let the sender retry, or raise maxEntries. The table: ${this.outage?.message}`;
      throw new FallbackFullError(message, { cause: this.outage, effect: 'unknown' });
    }
    this.remember(request, true);
    return { isNew: true, degraded: true };
  }

  private inMemory(): DeduplicationResult {
    return { isNew: false, reason: 'In-memory duplicate check', degraded: this.useFallback };
  }

  private remember(request: MarkRequest, pending: boolean): void {
    this.memory.delete(request.key);
    const expiresAt = this.clock.steady() + request.retentionMs;
    this.memory.set(request.key, { request, expiresAt, pending, handing: false });
  }

  /** Whether there is room for one more event, after the oldest that the table has as well was forgotten. */
  private makeRoom(): boolean {
    if (this.memory.size < this.maxEntries) return true;
    for (const [key, { pending }] of this.memory) {
      if (!pending) return this.memory.delete(key);
    }
    return false;
  }

  /** Entries are in the order of their age, and expire in it. */
  private dropExpired(): void {
    const now = this.clock.steady();
    for (const [key, { expiresAt }] of this.memory) {
      if (now < expiresAt) return;
      this.memory.delete(key);
    }
  }

  private fallBack(error: Error): void {
    const isFirst = this.retryAt === undefined;
    this.outage = error;
    this.retryAt = this.clock.steady() + this.retryAfterMs;
    const retryAt = this.clock.now() + this.retryAfterMs;
    if (isFirst) {
      const text = 'deduplication falls back to the memory of this process; other instances may handle the same events';
      this.logger.warn(text, { error: error.message, retry_at: new Date(retryAt).toISOString() });
    }
    this.onFallback?.({ error, retryAt });
  }

  private recovered(): void {
    if (this.retryAt === undefined || this.useFallback) return;
    this.retryAt = this.outage = undefined;
    this.logger.info('deduplication uses the table again');
  }

  /** Writes some of the events that were accepted during the outage. What fails stays for the next call. */
  private async handOver(): Promise<void> {
    const pending: Remembered[] = [];
    for (const entry of this.memory.values()) {
      if (entry.pending && !entry.handing && pending.push(entry) === HANDOVER) break;
    }
    const hand = async (entry: Remembered) => {
      entry.handing = true;
      try {
        const { isNew } = await this.dynamoService.check(entry.request);
        entry.pending = false;
        if (!isNew) this.conflicts += 1;
      } catch {
        // It stays pending.
      } finally {
        entry.handing = false;
      }
    };
    await Promise.all(pending.map(hand));
  }
}

// Middleware for Slack's Bolt: each event is handled once, whichever instance receives Slack's retry.

import {
  HybridDeduplicationService,
  type DeduplicationResult,
  type HybridDeduplicationOptions,
} from './deduplication.js';

export interface BoltOptions extends HybridDeduplicationOptions {
  /** Where events are marked. Default: a `HybridDeduplicationService` with these options. */
  service?: {
    checkAndMarkProcessed(eventKey: string, metadata: Record<string, unknown>): Promise<DeduplicationResult>;
  };
  /** Called for each duplicate. Default: one line in Bolt's log. */
  onDuplicate?: ((eventId: string, result: DeduplicationResult) => void) | undefined;
}

interface BoltArguments {
  body: any;
  context?: any;
  logger?: { info(...text: unknown[]): void };
  next: () => Promise<void>;
}

/**
 * Deduplicates by `event_id`: `app.use(deduplicateEvents())`, before the listeners. What has no event id (commands,
 * clicks) passes. A duplicate ends here, and Bolt acknowledges it.
 */
export function deduplicateEvents(options: BoltOptions = {}): (args: any) => Promise<void> {
  const { service: given, onDuplicate, ...rest } = options;
  const service = given ?? new HybridDeduplicationService(rest);
  return async ({ body, context, logger, next }: BoltArguments) => {
    const eventId = body?.event_id;
    if (typeof eventId !== 'string' || eventId === '') return next();
    const { event } = body;
    const result = await service.checkAndMarkProcessed(eventId, {
      file_id: string(event?.files?.[0]?.id ?? event?.file_id),
      channel_id: string(event?.channel ?? event?.channel_id),
      user_id: string(event?.user ?? event?.user_id),
      lambda_instance_id: string(context?.awsRequestId ?? process.env['AWS_LAMBDA_LOG_STREAM_NAME']),
    });
    if (result.isNew) return next();
    if (onDuplicate) onDuplicate(eventId, result);
    else logger?.info(`Duplicate event detected (key: ${eventId}), reason: ${result.reason}`);
  };
}

/** Slack sends objects in some of these places. */
function string(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

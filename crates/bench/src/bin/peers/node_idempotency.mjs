// The handler inside node-idempotency, on the Redis of the first argument.
import { Idempotency } from '@node-idempotency/core';
import { RedisStorageAdapter } from '@node-idempotency/storage-adapter-redis';
import { handle, serve } from './handler.mjs';

const storage = new RedisStorageAdapter({ url: process.argv[2] });
await storage.connect();
const idempotency = new Idempotency(storage, { enforceIdempotency: true });

serve(async ({ headers, url, method }, order) => {
  const request = { headers, path: url, method, body: order };
  const earlier = await idempotency.onRequest(request);
  if (earlier !== undefined) return earlier.body;
  const body = handle(order);
  await idempotency.onResponse(request, { body, additional: { status: 200 } });
  return body;
});

// Handles each event from standard input once: one JSON object per line, with an "id".
//
//     ICHIDO_URL=http://127.0.0.1:8070 node build/consumer.js < events.jsonl

import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';

import { Ichido, InDoubt, KeyReused, type Json } from './ichido.js';

interface Upload {
  id: string;
}

/** Your work. Duplicates get its result. */
async function handle(event: Upload): Promise<Json> {
  return { handled: event.id };
}

const ichido = new Ichido(process.env['ICHIDO_URL'], process.env['ICHIDO_ADMIN_TOKEN']);
const lines = (await text(process.stdin)).split('\n').filter((line) => line.trim() !== '');

// Cheap events: one call for all of them.
const results = await ichido.check(lines.map((line) => ({ key: `seen:${JSON.parse(line).id}` })));
for (const { key, is_new, degraded } of results) {
  if (degraded) console.error(`${key}: the ledger is unavailable; another instance may handle it too`);
  console.log(key, is_new ? 'new' : 'duplicate');
}

// Work that must be neither lost nor done twice.
for (const line of lines) {
  const event: Upload = JSON.parse(line);
  const fingerprint = createHash('sha256').update(line).digest('hex');
  try {
    console.log(event.id, JSON.stringify(await ichido.once(event.id, () => handle(event), { fingerprint })));
  } catch (error) {
    if (error instanceof InDoubt) console.log(event.id, 'in doubt: an operator must look');
    else if (error instanceof KeyReused) console.log(event.id, 'is the id of a different event: a bug');
    else throw error;
  }
}

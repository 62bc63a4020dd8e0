// A worker of shared-table.test.mjs: handles each event and each job that it is told of, and reports what it was given to do.
//
// An effect is one line in a file, written before the claim is completed: what a killed worker did stays visible.
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

import { EventDeduplicationService, once } from '../dist/esm/index.js';

const [, , name, effects] = process.argv;
const settings = { timeoutMs: 60_000, tryTimeoutMs: 20_000 };
const service = new EventDeduplicationService(settings);

async function handle(key) {
  const { isNew } = await service.checkAndMarkProcessed(`event-${key}`, { lambda_instance_id: name });
  if (isNew) appendFileSync(effects, `event ${key} ${name}\n`);
  const work = async () => {
    appendFileSync(effects, `job ${key} ${name}\n`);
    await new Promise((resolve) => setTimeout(resolve, 5));
    return { by: name };
  };
  try {
    const { by } = await once(`job-${key}`, work, { ...settings, leaseMs: 1_500, waitMs: 0 });
    return { key, by };
  } catch (error) {
    return { key, error: error.code ?? String(error) };
  }
}

console.log('ready');
for await (const key of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await handle(key)));
}

// Lets a test drive the TypeScript client: requests and responses are lines of JSON.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import { Ichido, NothingHappened, type Json } from './ichido.js';

const ichido = new Ichido(process.argv[2]);

async function once(request: any): Promise<Json> {
  let ran = 0;
  const work = async () => {
    ran += 1;
    if (request.work === 'slow') await sleep(4_000);
    if (request.work === 'nothing') throw new NothingHappened('no connection');
    if (request.work === 'unknown') throw new Error('no response');
    return { by: 'the client' };
  };
  try {
    const { fingerprint, lease_ms } = request;
    const options = { ...(fingerprint && { fingerprint }), ...(lease_ms && { leaseMs: lease_ms }) };
    return { outcome: await ichido.once(request.once, work, options), ran };
  } catch (error) {
    return { error: (error as Error).constructor.name, ran };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const response = request.check ? { results: await ichido.check(request.check) } : await once(request);
  console.log(JSON.stringify(response));
}

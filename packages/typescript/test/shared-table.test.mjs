// Node workers and ichido processes share one table; some of them are killed. Each event is new once, each claim is granted
// once, and what a killed process held is in doubt, not lost and not run again.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';

import { once } from '../dist/esm/index.js';
import { claimsApi, createTable, post, SERVERS, start, until } from './kit.mjs';

const WORKER = fileURLToPath(new URL('worker.mjs', import.meta.url));
const KEYS = Array.from({ length: 60 }, (_, number) => String(number));
const NODE_WORKERS = 4;

for (const server of SERVERS) {
  test(`workers and ichido processes share a table, and some are killed (${server.name})`, { timeout: 240_000 }, async () => {
    const table = await createTable(server);
    const directory = mkdtempSync(join(tmpdir(), 'ichido-ts-'));
    after(() => rmSync(directory, { recursive: true, force: true }));
    const effects = join(directory, 'effects');
    writeFileSync(effects, '');

    const workers = Array.from({ length: NODE_WORKERS }, (_, number) => {
      const name = `node-${number}`;
      return { name, process: start(process.execPath, [WORKER, name, effects], { env: table.environment }) };
    });
    const apis = [await claimsApi(table.ledger), await claimsApi(table.ledger)];
    await Promise.all(workers.map(({ process }) => process.line(/ready/)));
    // Each starts at another place, so that they meet in the middle.
    workers.forEach(({ process }, number) => {
      const keys = KEYS.slice(number * 10).concat(KEYS.slice(0, number * 10));
      process.child.stdin.write(`${keys.join('\n')}\n`);
    });
    const throughApi = apis.map((instance, number) => callers(instance.api, `api-${number}`, [...KEYS].reverse()));

    // Two workers and one ichido process die in the middle of it.
    const reported = ({ process }) => process.text.split('\n').filter((line) => line.startsWith('{'));
    await until('every victim has started', () => workers.slice(0, 2).every((worker) => reported(worker).length >= 3));
    for (const { process } of workers.slice(0, 2)) process.child.kill('SIGKILL');
    apis[0].child.kill('SIGKILL');
    const reports = await Promise.all(throughApi);
    for (const { process } of workers.slice(2)) process.child.stdin.end();
    await Promise.all(workers.map(({ process }) => process.exited));
    for (const worker of workers.slice(2)) {
      const lines = reported(worker).map((line) => JSON.parse(line));
      assert.equal(lines.length, KEYS.length, `${worker.name}: ${worker.process.text}`);
      for (const { error } of lines) assert.ok([undefined, 'in-flight', 'in-doubt'].includes(error), error);
    }

    for (const worker of workers.slice(0, 2)) {
      assert.ok(reported(worker).length < KEYS.length, `${worker.name} was killed in the middle`);
    }

    const done = read(effects).map((line) => line.split(' '));
    const api = reports.flat();
    assert.ok(done.length > 10 && api.length > 10, `both sides had a part in it: ${done.length}, ${api.length}`);
    for (const key of KEYS) {
      const events = [...done.filter(([kind, of]) => kind === 'event' && of === key), ...api.filter(({ event }) => event === key)];
      const jobs = [...done.filter(([kind, of]) => kind === 'job' && of === key), ...api.filter(({ job }) => job === key)];
      // A process that is killed between the mark and its report loses the event: that is what a one-step check cannot prevent.
      assert.ok(events.length <= 1, `event ${key} was new ${events.length} times`);
      assert.ok(jobs.length <= 1, `job ${key} was granted ${jobs.length} times`);
      assert.ok(await table.get(`event-${key}`), `event ${key} is marked`);
    }
    const missing = KEYS.filter((key) => !done.some(([kind, of]) => kind === 'event' && of === key) && !api.some(({ event }) => event === key));
    assert.ok(missing.length <= 3, `at most one for each killed process: ${missing}`);

    // Every job was done once, or is in doubt because its holder was killed.
    const outcomes = await Promise.all(
      KEYS.map((key) => once(`job-${key}`, () => 'not run', table.options).then(() => 'done', ({ code }) => code)),
    );
    const doubtful = outcomes.filter((outcome) => outcome === 'in-doubt').length;
    assert.ok(outcomes.every((outcome) => outcome === 'done' || outcome === 'in-doubt'), String(outcomes));
    assert.ok(doubtful <= 3, `at most one for each killed process: ${doubtful}`);
    const held = done.filter(([kind]) => kind === 'job').length + api.filter(({ job }) => job !== undefined).length;
    assert.ok(held >= KEYS.length - 3, `${held} of ${KEYS.length} jobs ran`);
  });
}

const read = (file) => readFileSync(file, 'utf8').split('\n').filter(Boolean);

/** A client of the claim API that goes through the keys, until the process behind it is killed. Reports what it was given. */
async function callers(api, name, keys) {
  const given = [];
  for (const key of keys) {
    try {
      const checked = await post(`${api}/v1/events/check`, { events: [{ key: `event-${key}`, metadata: { lambda_instance_id: name } }] });
      assert.equal(checked.body.results[0].degraded, false);
      if (checked.body.results[0].is_new) given.push({ event: key });
      const claimed = await post(`${api}/v1/claims`, { key: `job-${key}`, lease_ms: 1_500 });
      if (claimed.status !== 201) continue;
      given.push({ job: key });
      const settled = await post(`${api}/v1/claims/complete`, { key: `job-${key}`, token: claimed.body.token, outcome: { by: name } });
      assert.equal(settled.status, 200);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      return given;
    }
  }
  return given;
}

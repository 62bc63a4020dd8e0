// Events are new once: on both servers, through faults, and during an outage.
import assert from 'node:assert/strict';
import test from 'node:test';

import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { DynamoDBDocumentClient } from '@aws-sdk/lib-dynamodb';

import { EventDeduplicationService, HybridDeduplicationService, once } from '../dist/esm/index.js';
import { claimsApi, closedAddress, createTable, denied, manualClock, post, proxy, SERVERS, start, throttled } from './kit.mjs';

const metadata = { file_id: 'F06G8NT0TQV', channel_id: 'C024BE91L', user_id: 'U2147483697', lambda_instance_id: 'i-1' };
const KEYS = ['Ev06FZKQ2T9N', 'F06G8NT0TQV_1718000000.000100', '名前 with spaces/and#more', 'ichido', 'ichido#not-a-claim'];
const SIX_HOURS = 6 * 3600;
const [dynoxide, amazon] = SERVERS;

for (const server of SERVERS) {
  test(`an event is new once, and its mark is the one that ichido writes (${server.name})`, async () => {
    const table = await createTable(server);
    const one = new EventDeduplicationService(table.options);
    const other = new EventDeduplicationService(table.options);
    const { api } = await claimsApi(table.ledger);
    for (const key of KEYS) {
      assert.deepEqual(await one.checkAndMarkProcessed(key, metadata), { isNew: true });
      const duplicate = { isNew: false, reason: 'Already processed by another instance' };
      assert.deepEqual(await other.checkAndMarkProcessed(key, metadata), duplicate);
      const checked = await post(`${api}/v1/events/check`, { events: [{ key }] });
      assert.equal(checked.body.results[0].is_new, false);
      assert.deepEqual(checked.body.results[0].metadata, metadata);

      const mine = `ts-${key}`;
      const [shape, own] = [await marked(api, table, `${mine}-ichido`), await markedHere(one, table, `${mine}-here`)];
      assert.deepEqual(own, shape, 'the same attributes and types');
    }
    const raced = await Promise.all(
      Array.from({ length: 40 }, (_, n) => (n % 2 ? one : other).checkAndMarkProcessed(`race-${n % 5}`, {})),
    );
    assert.equal(raced.filter(({ isNew }) => isNew).length, 5);
  });

  test(`an expired mark is new, and marks of others are seen (${server.name})`, async () => {
    const table = await createTable(server);
    const service = new EventDeduplicationService(table.options);
    const now = Math.floor(Date.now() / 1000);
    const item = (key, ttl) => ({ event_key: { S: key }, processed_at: { N: String(ttl - SIX_HOURS) }, ttl: { N: String(ttl) } });
    await table.put(item('expired', now - 60));
    await table.put(item('lasting', now + 600));
    assert.equal((await service.checkAndMarkProcessed('expired')).isNew, true);
    assert.equal((await service.checkAndMarkProcessed('expired')).isNew, false);
    assert.equal((await service.checkAndMarkProcessed('lasting')).isNew, false);
  });

  test(`a lost reply does not make an event its own duplicate (${server.name})`, async () => {
    const table = await createTable(server);
    const lossy = await proxy(server.endpoint, ({ number }) => (number < 2 ? 'lose-reply' : undefined));
    const service = new EventDeduplicationService({ ...table.options, endpoint: lossy.url });
    assert.deepEqual(await service.checkAndMarkProcessed('Ev1', metadata), { isNew: true });
    assert.ok(lossy.calls.length >= 3, 'it was sent again');
    assert.equal((await service.checkAndMarkProcessed('Ev1', metadata)).isNew, false);
  });
}

/** The mark's attribute names and types, without what differs from call to call. */
const shapeOf = (item) => Object.fromEntries(Object.entries(item).map(([name, value]) => [name, Object.keys(value)[0]]));

async function marked(api, table, key) {
  const { body } = await post(`${api}/v1/events/check`, { events: [{ key, metadata }] });
  assert.equal(body.results[0].is_new, true);
  return shapeOf(await table.get(key));
}

async function markedHere(service, table, key) {
  assert.equal((await service.checkAndMarkProcessed(key, metadata)).isNew, true);
  const item = await table.get(key);
  const kept = Number(item.ttl.N) - Number(item.processed_at.N);
  assert.ok(kept === SIX_HOURS || kept === SIX_HOURS + 1, `six hours, rounded up: ${kept}`);
  return shapeOf(item);
}

test('metadata keeps its types, undefined is left out, and reserved names are refused', async () => {
  const table = await createTable(dynoxide);
  const service = new EventDeduplicationService(table.options);
  await service.checkAndMarkProcessed('Ev1', { size: 3, ok: true, none: undefined, empty: '', tags: ['a'], more: { b: 1 } });
  const { event_key, processed_at, ttl, ichido_nonce, ...rest } = await table.get('Ev1');
  assert.deepEqual(rest, { size: { N: '3' }, ok: { BOOL: true }, empty: { NULL: true }, tags: { L: [{ S: 'a' }] }, more: { M: { b: { N: '1' } } } });
  for (const bad of [{ ttl: 1 }, { event_key: 'x' }, { ichido_nonce: 'x' }, { big: 'x'.repeat(9000) }, { when: new Date() }]) {
    await assert.rejects(service.checkAndMarkProcessed('Ev2', bad), { code: 'invalid-input' });
  }
  for (const key of ['', undefined, 'k'.repeat(1025), '\ud800']) {
    await assert.rejects(service.checkAndMarkProcessed(key, {}), { code: 'invalid-input' });
  }
  for (const ttlHours of [0, NaN, 1e9]) {
    const never = new EventDeduplicationService({ ...table.options, ttlHours });
    await assert.rejects(never.checkAndMarkProcessed('Ev2', {}), { code: 'invalid-input' });
  }
  assert.equal(await table.get('Ev2'), undefined, 'a refused call marks nothing');
});

test('throttling is retried with backoff, up to a bound', async () => {
  const table = await createTable(dynoxide);
  const busy = await proxy(dynoxide.endpoint, ({ number }) => (number < 4 ? throttled : undefined));
  const service = new EventDeduplicationService({ ...table.options, endpoint: busy.url });
  assert.equal((await service.checkAndMarkProcessed('Ev1', {})).isNew, true);
  assert.equal(busy.calls.length, 5);

  const always = await proxy(dynoxide.endpoint, () => throttled);
  const bounded = new EventDeduplicationService({ ...table.options, endpoint: always.url, timeoutMs: 4_000 });
  await assert.rejects(bounded.checkAndMarkProcessed('Ev2', {}), { code: 'throttled', effect: 'none', message: /capacity/ });
  assert.ok(always.calls.length > 1 && always.calls.length < 20);
});

test('permanent failures are typed, say what to do, and are not retried', async () => {
  const table = await createTable(dynoxide);
  const refusing = await proxy(dynoxide.endpoint, () => denied);
  const service = (options) => new EventDeduplicationService({ ...table.options, ...options });
  const check = (options) => service(options).checkAndMarkProcessed('Ev1', {});
  await assert.rejects(check({ endpoint: refusing.url }), { code: 'permission-denied', message: /PutItem and GetItem/ });
  assert.equal(refusing.calls.length, 1);
  await assert.rejects(check({ table: 'no-such-table' }), { code: 'table-missing', message: /no-such-table does not exist/ });
  assert.throws(() => service({ table: 'a b' }), { code: 'invalid-input' });
  const nobody = await closedAddress();
  await assert.rejects(check({ endpoint: nobody, timeoutMs: 200 }), { code: 'unreachable', effect: 'none' });
});

test('what DynamoDB refuses is told apart by its code', async () => {
  for (const [type, message, code] of [
    ['InvalidSignatureException', 'Signature expired: 20250118T000000Z is now earlier than 20250118T010000Z', 'clock-skew'],
    ['UnrecognizedClientException', 'The security token included in the request is invalid.', 'permission-denied'],
    ['ExpiredTokenException', 'The security token included in the request is expired', 'permission-denied'],
    ['ValidationException', 'One of the required keys was not given a value', 'refused'],
  ]) {
    const refusing = await proxy(dynoxide.endpoint, () => ({ status: 400, body: { __type: `x#${type}`, message } }));
    const service = new EventDeduplicationService({ table: 'events', endpoint: refusing.url });
    await assert.rejects(service.checkAndMarkProcessed('Ev1', {}), { code, effect: 'none' }, type);
    assert.equal(refusing.calls.length, 1, type);
  }
  let calls = 0;
  const table = await createTable(dynoxide);
  const ill = await proxy(dynoxide.endpoint, () => {
    calls += 1;
    const type = calls === 1 ? 'InternalServerError' : 'TransactionConflictException';
    return calls < 3 ? { status: calls === 1 ? 500 : 400, body: { __type: `x#${type}` } } : undefined;
  });
  const service = new EventDeduplicationService({ ...table.options, endpoint: ill.url });
  assert.equal((await service.checkAndMarkProcessed('Ev1', {})).isNew, true, 'passing faults are retried');
});

test('a client of the bot is used: a plain one, or a document client', async () => {
  const table = await createTable(dynoxide);
  const plain = new DynamoDBClient({ endpoint: table.endpoint, region: 'us-east-1' });
  for (const [name, client] of Object.entries({ plain, document: DynamoDBDocumentClient.from(plain) })) {
    const service = new EventDeduplicationService({ table: table.table, client });
    assert.equal((await service.checkAndMarkProcessed(name, metadata)).isNew, true);
    assert.equal((await service.checkAndMarkProcessed(name, metadata)).isNew, false);
    assert.deepEqual((await table.get(name)).file_id, { S: metadata.file_id });
    assert.equal(await once(`job-${name}`, () => 1, { table: table.table, client }), 1);
    assert.equal(await once(`job-${name}`, () => 2, { table: table.table, client }), 1);
  }
});

test('without credentials nothing is sent', async () => {
  const table = await createTable(dynoxide);
  const script = `
    import { EventDeduplicationService } from ${JSON.stringify(new URL('../dist/esm/index.js', import.meta.url).href)};
    await new EventDeduplicationService().checkAndMarkProcessed('Ev1', {}).catch((error) => console.log(error.code, error.message));`;
  const { text, exited } = await ended(['--input-type=module', '-e', script], {
    ...table.environment,
    AWS_ACCESS_KEY_ID: '',
    AWS_SECRET_ACCESS_KEY: '',
    AWS_EC2_METADATA_DISABLED: 'true',
    HOME: '/nonexistent',
  });
  assert.match(text, /^permission-denied no AWS credentials found/);
  assert.equal(exited.code, 0);
});

async function ended(args, env) {
  const process_ = start(process.execPath, args, { env });
  const exited = await process_.exited;
  return { text: process_.text, exited };
}

test('a wrong clock is an error, and the end of it is noticed', async () => {
  const table = await createTable(dynoxide);
  let shiftMs = 3_600_000;
  const shifted = await proxy(dynoxide.endpoint, () => ({ headers: { date: new Date(Date.now() + shiftMs).toUTCString() } }));
  const service = new EventDeduplicationService({ ...table.options, endpoint: shifted.url });
  await service.checkAndMarkProcessed('Ev0', {});
  await assert.rejects(service.checkAndMarkProcessed('Ev1', {}), { code: 'clock-skew', message: /60 minutes behind .*NTP/ });
  assert.equal(await table.get('Ev1'), undefined, 'nothing was written');
  shiftMs = 0;
  assert.equal((await service.checkAndMarkProcessed('Ev1', {})).isNew, true);
});

/** A hybrid service behind a proxy that a test can cut, with clocks that it moves. */
async function hybrid(options = {}) {
  const table = await createTable(dynoxide);
  const state = { cut: true };
  const line = await proxy(dynoxide.endpoint, () => (state.cut ? 'lose-request' : undefined));
  const clock = manualClock();
  const log = [];
  const logger = { warn: (...text) => log.push(['warn', ...text]), info: (...text) => log.push(['info', ...text]) };
  const fallbacks = [];
  const service = new HybridDeduplicationService({
    ...table.options,
    endpoint: line.url,
    timeoutMs: 4_000,
    clock,
    logger,
    onFallback: (fallback) => fallbacks.push(fallback),
    ...options,
  });
  const check = (key) => service.checkAndMarkProcessed(key, {});
  return { table, state, line, clock, log, fallbacks, service, check };
}

test('during an outage the memory answers, and says so', async () => {
  const { state, clock, line, log, fallbacks, service, check, table } = await hybrid();
  state.cut = false;
  assert.deepEqual(await check('before'), { isNew: true, degraded: false });
  state.cut = true;
  assert.deepEqual(await check('Ev1'), { isNew: true, degraded: true });
  await assert.rejects(service.checkAndMarkProcessed('Ev4', { ttl: 1 }), { code: 'invalid-input' });
  assert.deepEqual(await check('Ev1'), { isNew: false, reason: 'In-memory duplicate check', degraded: true });
  assert.equal((await check('before')).isNew, false, 'one instance never calls an event new twice');
  assert.equal(service.useFallback, true);
  assert.equal(fallbacks.length, 1);
  assert.equal(fallbacks[0].error.code, 'unreachable');
  assert.match(log[0][1], /falls back to the memory/);

  const calls = line.calls.length;
  clock.advance(59_000);
  await check('Ev2');
  assert.equal(line.calls.length, calls, 'the table is left alone for a minute');

  state.cut = false;
  clock.advance(2_000);
  assert.deepEqual(await check('Ev3'), { isNew: true, degraded: false });
  assert.equal(service.useFallback, false);
  assert.match(log.at(-1)[1], /uses the table again/);
  for (const key of ['Ev1', 'Ev2']) assert.ok(await table.get(key), `${key} was handed over`);
  assert.equal((await check('Ev1')).isNew, false);
  assert.equal(service.conflicts, 0);
});

test('an event that another instance accepted during the outage is counted', async () => {
  const { state, clock, service, check, table } = await hybrid();
  assert.equal((await check('Ev1')).isNew, true);
  await new EventDeduplicationService(table.options).checkAndMarkProcessed('Ev1', {});
  state.cut = false;
  clock.advance(61_000);
  await check('Ev2');
  assert.equal(service.conflicts, 1);
});

test('an event that is being handed over is not new again', async () => {
  const { state, clock, check } = await hybrid();
  assert.equal((await check('Ev1')).isNew, true);
  state.cut = false;
  clock.advance(61_000);
  const [other, again] = await Promise.all([check('Ev2'), check('Ev1')]);
  assert.equal(other.isNew, true);
  assert.deepEqual(again, { isNew: false, reason: 'In-memory duplicate check', degraded: false });
});

test('the memory is bounded, refuses what it cannot hold, and forgets after the time to live', async () => {
  const { state, clock, service, check } = await hybrid({ maxEntries: 3, retryAfterMs: 24 * 3_600_000 });
  state.cut = false;
  for (const key of ['t1', 't2', 't3', 't4']) assert.equal((await check(key)).isNew, true);
  assert.equal(service.remembered, 3);
  state.cut = true;
  for (const key of ['a', 'b', 'c']) assert.deepEqual(await check(key), { isNew: true, degraded: true });
  const full = { code: 'fallback-full', effect: 'unknown', message: /3 events.*maxEntries/ };
  await assert.rejects(check('d'), full);
  assert.equal((await check('a')).isNew, false, 'nothing was forgotten');
  assert.equal(service.remembered, 3);
  clock.advance(6 * 3_600_000);
  assert.equal((await check('d')).isNew, true);
  assert.equal(service.remembered, 1);
});

test('calls for one event take turns, so that only one is new when the outage begins', async () => {
  const { check } = await hybrid();
  const results = await Promise.all(Array.from({ length: 8 }, () => check('Ev1')));
  assert.equal(results.filter(({ isNew }) => isNew).length, 1);
});

test('a missing permission is not an outage', async () => {
  const refusing = await proxy(amazon.endpoint, () => denied);
  const service = new HybridDeduplicationService({ table: 'events', endpoint: refusing.url });
  await assert.rejects(service.checkAndMarkProcessed('Ev1', {}), { code: 'permission-denied' });
  assert.equal(service.useFallback, false);
});

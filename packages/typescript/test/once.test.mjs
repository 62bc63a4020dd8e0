// Work runs once: directly on both DynamoDB servers and through the claim API, through faults and frozen processes.
import assert from 'node:assert/strict';
import test from 'node:test';

import { NothingHappened, once } from '../dist/esm/index.js';
import { claimKey, decodeClaim, encodeClaim } from '../dist/esm/item.js';
import { DynamoLedger } from '../dist/esm/ledger.js';
import { LeaseWatch } from '../dist/esm/lease-watch.js';
import { claimsApi, closedAddress, createTable, ichido, manualClock, post, proxy, required, serve, SERVERS, start, unique, until } from './kit.mjs';
import { itemToJson } from './vectors.mjs';

const [dynoxide] = SERVERS;
const API_ROUTE = '/v1/claims';
const claimItem = (table, text) => table.get(claimKey({ tenant: '', route: API_ROUTE, text }));

/** Every way to reach a ledger, each with a table behind it. */
const LEDGERS = [
  ...SERVERS.map((server) => ({
    name: server.name,
    async open() {
      const table = await createTable(server);
      return { table, options: table.options };
    },
  })),
  {
    name: 'claim API',
    async open() {
      const table = await createTable(dynoxide);
      const { api } = await claimsApi(table.ledger);
      return { table, options: { api, timeoutMs: 30_000 } };
    },
  },
];

for (const { name, open } of LEDGERS) {
  test(`work runs once and its outcome is replayed (${name})`, async () => {
    const { table, options } = await open();
    let runs = 0;
    const work = () => ({ receipt: ++runs, 名: '値' });
    assert.deepEqual(await once('order-17', work, { ...options, metadata: { user_id: 'U1' } }), { receipt: 1, 名: '値' });
    assert.deepEqual(await once('order-17', work, options), { receipt: 1, 名: '値' });
    assert.equal(await once('nothing', () => undefined, options), undefined);
    assert.equal(await once('nothing', () => 1, options), null, 'stored as JSON');
    assert.equal(runs, 1);
    const item = await claimItem(table, 'order-17');
    assert.equal(item.ichido_state.S, 'done');
    assert.ok(Number(item.ttl.N) > Date.now() / 1000 + 86_000);
  });

  test(`concurrent calls share one run (${name})`, async () => {
    const { options } = await open();
    let runs = 0;
    const work = async () => {
      runs += 1;
      await new Promise((resolve) => setTimeout(resolve, 150));
      return runs;
    };
    const results = await Promise.all(Array.from({ length: 6 }, () => once('k', work, options)));
    assert.deepEqual(results, [1, 1, 1, 1, 1, 1]);
  });

  test(`failed work is in doubt, and is not run again (${name})`, async () => {
    const { table, options } = await open();
    const cause = new TypeError('socket hang up, token=hunter2');
    const fails = () => Promise.reject(cause);
    await assert.rejects(once('k', fails, options), { code: 'in-doubt', effect: 'unknown', cause });
    await assert.rejects(once('k', () => assert.fail('it ran again'), options), { code: 'in-doubt', message: /resolve/ });
    const item = await claimItem(table, 'k');
    assert.equal(item.ichido_doubt_text.S, 'the work failed with TypeError', 'no message, which may contain a secret');
  });

  test(`work that declares that nothing happened releases its key (${name})`, async () => {
    const { table, options } = await open();
    const nothing = () => Promise.reject(new NothingHappened('the card was declined'));
    await assert.rejects(once('k', nothing, options), { code: 'nothing-happened', message: 'the card was declined' });
    assert.equal(await claimItem(table, 'k'), undefined);
    assert.equal(await once('k', () => 'second', options), 'second');
  });

  test(`a key that was used for something else is refused (${name})`, async () => {
    const { options } = await open();
    await once('k', () => 1, { ...options, fingerprint: 'body one' });
    assert.equal(await once('k', () => 2, { ...options, fingerprint: 'body one' }), 1);
    await assert.rejects(once('k', () => 2, { ...options, fingerprint: 'body two' }), { code: 'key-reused' });
  });

  test(`a lease is renewed while work runs, and waiting has an end (${name})`, async () => {
    const { table, options } = await open();
    let finish;
    const finished = new Promise((resolve) => (finish = resolve));
    const first = once('k', () => finished, { ...options, leaseMs: 1_500 });
    await until('two renewals', async () => Number((await claimItem(table, 'k'))?.ichido_renewals.N) >= 2);
    await assert.rejects(once('k', () => 2, { ...options, waitMs: 100 }), { code: 'in-flight', effect: 'none' });
    const stop = AbortSignal.abort(new Error('stop'));
    await assert.rejects(once('k', () => 2, { ...options, signal: stop }), /stop/);
    finish('first');
    assert.equal(await first, 'first');
    assert.equal(await once('k', () => 2, options), 'first');
  });

  test(`lost replies change nothing (${name})`, async () => {
    const { table, options } = await open();
    const lossyOptions = async (lossy) => (options.api ? { ...options, api: lossy.url } : { ...options, endpoint: lossy.url });
    const target = options.api ?? options.endpoint;
    // The first reply to each different call is lost.
    const seen = new Set();
    const lossy = await proxy(target, ({ name, body }) => {
      const call = `${name} ${/"UpdateExpression"/.test(body)}`;
      if (seen.has(call)) return undefined;
      seen.add(call);
      return 'lose-reply';
    });
    const through = await lossyOptions(lossy);
    let runs = 0;
    assert.equal(await once('done', () => ++runs, through), 1);
    assert.equal(await once('done', () => ++runs, options), 1);
    const { ichido_renewals: renewals } = await claimItem(table, 'done');
    assert.ok(Number(renewals.N) >= 1, 'a grant whose reply was lost is renewed before the work starts');
    seen.clear();
    await assert.rejects(once('free', () => Promise.reject(new NothingHappened('no')), through), { code: 'nothing-happened' });
    assert.equal(await claimItem(table, 'free'), undefined);
    seen.clear();
    await assert.rejects(once('doubt', () => Promise.reject(new Error('x')), through), { code: 'in-doubt' });
    assert.equal((await claimItem(table, 'doubt')).ichido_state.S, 'in-doubt');
  });

  test(`the result of a run whose claim was lost is not a success (${name})`, async () => {
    const { table, options } = await open();
    const { api } = options.api ? options : await claimsApi(table.ledger);
    let aborted = false;
    const work = async (held) => {
      held.signal.addEventListener('abort', () => (aborted = true));
      const released = await post(`${api}/v1/claims/release-by-operator`, { key: 'k', force: true });
      assert.equal(released.status, 200);
      await assert.rejects(held.confirm(), { code: 'lease-lost' });
      return 'late';
    };
    await assert.rejects(once('k', work, options), { code: 'lease-lost', value: 'late', effect: 'unknown' });
    assert.ok(aborted);
  });

  test(`an outcome that cannot be recorded is handed to the caller (${name})`, async () => {
    const { options } = await open();
    const state = { cut: false };
    const line = await proxy(options.api ?? options.endpoint, () => (state.cut ? 'lose-request' : undefined));
    const through = { ...options, timeoutMs: 5_000, ...(options.api ? { api: line.url } : { endpoint: line.url }) };
    const work = () => {
      state.cut = true;
      return 'receipt';
    };
    await assert.rejects(once('k', work, through), { code: 'unrecorded', value: 'receipt', effect: 'done' });
  });
}

test('claims are shared with ichido in both directions, and the items are the same', async () => {
  for (const server of SERVERS) {
    const table = await createTable(server);
    const { api } = await claimsApi(table.ledger);
    // Here first, then ichido.
    await once('ours', () => ({ by: 'node' }), { ...table.options, fingerprint: 'f', metadata: { user_id: 'U1' } });
    const done = await post(`${api}/v1/claims`, { key: 'ours', fingerprint: 'f' });
    assert.deepEqual([done.status, done.body.outcome], [200, { by: 'node' }]);
    assert.equal((await post(`${api}/v1/claims`, { key: 'ours', fingerprint: 'g' })).status, 422);
    const running = once('running', async () => {
      const held = await post(`${api}/v1/claims`, { key: 'running' });
      assert.deepEqual([held.status, held.body.state], [409, 'running']);
    }, table.options);
    await running;
    // ichido first, in every state, then here.
    const granted = await post(`${api}/v1/claims`, { key: 'theirs', metadata: { user_id: 'U2', empty: '' }, fingerprint: 'f' });
    const { token } = granted.body;
    await assert.rejects(once('theirs', () => 1, { ...table.options, fingerprint: 'f', waitMs: 0 }), { code: 'in-flight' });
    await post(`${api}/v1/claims/renew`, { key: 'theirs', token, lease_ms: 45_000 });
    await assertSame(table, 'theirs');
    await post(`${api}/v1/claims/doubt`, { key: 'theirs', token, reason: '不明' });
    await assert.rejects(once('theirs', () => 1, { ...table.options, fingerprint: 'f' }), { code: 'in-doubt', message: /不明/ });
    await assertSame(table, 'theirs');
    await post(`${api}/v1/claims/complete`, { key: 'theirs', token, outcome: { by: 'ichido' } });
    assert.deepEqual(await once('theirs', () => 1, { ...table.options, fingerprint: 'f' }), { by: 'ichido' });
    await assertSame(table, 'theirs');
    for (const key of ['ours', 'running']) await assertSame(table, key);
    // An operator's outcome need not be JSON, and a large one is not kept.
    const other = await post(`${api}/v1/claims`, { key: 'by hand' });
    await post(`${api}/v1/claims/doubt`, { key: 'by hand', token: other.body.token, reason: 'x' });
    await post(`${api}/v1/claims/resolve`, { key: 'by hand', as: 'done', outcome_text: 'paid by hand' });
    assert.equal(await once('by hand', () => 1, table.options), 'paid by hand');
    assert.equal((await once('large', () => 'x'.repeat(400_000), table.options)).length, 400_000);
    await assert.rejects(once('large', () => 1, table.options), { code: 'outcome-not-kept', effect: 'done' });
    assert.match((await post(`${api}/v1/claims`, { key: 'large' })).body.outcome_not_kept, /400002 bytes/);
    await assertSame(table, 'large');
  }
});

test('a claim of the gateway, which has a caller, is read and written alike', async () => {
  const table = await createTable(dynoxide);
  const upstream = await serve((_, __, response) => response.writeHead(201).end('order 1'));
  const gateway = await ichido(['gateway', '--upstream', upstream.url, '--listen', '127.0.0.1:0', '--admin', 'off', '--ledger', table.ledger]);
  const headers = { 'idempotency-key': '"k1"', authorization: 'Bearer t' };
  assert.equal((await fetch(`${gateway.api}/orders`, { method: 'POST', body: '{}', headers })).status, 201);
  const [item] = await until('the claim', async () => {
    const found = await table.scan();
    return found[0]?.ichido_state.S === 'done' && found;
  });
  assert.equal(item.ichido_format.N, '2');
  const record = decodeClaim(item);
  assert.match(record.caller, /^[0-9a-f]{64}$/);
  assert.deepEqual(itemToJson(encodeClaim(record)), itemToJson(item));
  const { tenant, route } = record.key;
  await assert.rejects(once('k1', () => 1, { ...table.options, scope: { tenant, route } }), { code: 'key-reused' });
});

test('operators find and resolve what Node left in doubt', async () => {
  const table = await createTable(dynoxide);
  const options = { ...table.options, metadata: { user_id: 'U1' } };
  await assert.rejects(once('charge-7', () => Promise.reject(new Error('x')), options), { code: 'in-doubt' });
  const run = async (...args) => {
    const command = start(required('ICHIDO_TEST_BINARY'), ['ledger', ...args, '--ledger', table.ledger]);
    const { code } = await command.exited;
    assert.equal(code, 0, command.text);
    return command.text;
  };
  assert.match(await run('list', '--state', 'in-doubt'), /charge-7/);
  assert.match(await run('show', 'charge-7'), /the work failed with Error/);
  await run('resolve', 'charge-7', '--as', 'absent');
  assert.equal(await once('charge-7', () => 'again', options), 'again');
});

/** What either side wrote is what this package would write for the same record. */
async function assertSame(table, key) {
  const item = await claimItem(table, key);
  assert.deepEqual(itemToJson(encodeClaim(decodeClaim(item))), itemToJson(item), key);
}

test('a lease is judged by watching it, not by clocks', async () => {
  const table = await createTable(dynoxide);
  const request = (nonce) => ({
    key: { tenant: '', route: API_ROUTE, text: 'k' },
    fingerprint: '0'.repeat(64),
    nonce: nonce.repeat(16),
    token: nonce.repeat(16),
    leaseMs: 30_000,
    retentionMs: 1000,
    holder: 'process',
    metadata: {},
  });
  const holder = new DynamoLedger({ ...table.options, clock: manualClock() });
  assert.equal((await holder.claim(request('0a'))).kind, 'granted');
  // The watcher's wall clock is two hours ahead: by it, the lease lapsed long ago.
  const clock = manualClock(Date.now() + 7_200_000);
  const watcher = new DynamoLedger({ ...table.options, clock });
  assert.equal((await watcher.claim(request('0b'))).kind, 'held');
  clock.advance(29_999);
  assert.equal((await watcher.claim(request('0b'))).kind, 'held');
  await holder.settle(request('0a').key, '0a'.repeat(16), { kind: 'renew', leaseMs: 30_000 });
  clock.advance(29_999);
  assert.equal((await watcher.claim(request('0b'))).kind, 'held', 'a renewal is a sign of life');
  clock.advance(30_000);
  const lapsed = await watcher.claim(request('0b'));
  assert.deepEqual([lapsed.kind, lapsed.doubt.reason.kind], ['in-doubt', 'lease-lapsed']);
  // The holder itself gets its grant again, with nothing left of the lease, and can still complete.
  const again = await holder.claim(request('0a'));
  assert.deepEqual([again.kind, again.grant.leftMs], ['granted', 0]);
});

test('the lease watch is bounded', () => {
  const watch = new LeaseWatch(2);
  const key = (text) => ({ tenant: '', route: '', text });
  const sighting = { token: 't', claimedAt: 1, renewals: 0 };
  for (const [number, text] of ['a', 'b', 'c'].entries()) watch.observe(key(text), sighting, number);
  assert.equal(watch.observe(key('c'), sighting, 9), 2);
  assert.equal(watch.observe(key('a'), sighting, 9), 9, 'forgotten: its watch starts again');
});

test('a frozen process notices that its claim was lost before it reports success', async () => {
  const table = await createTable(dynoxide);
  const { api } = await claimsApi(table.ledger);
  const script = `
    import { once } from ${JSON.stringify(new URL('../dist/esm/index.js', import.meta.url).href)};
    const work = async (held) => {
      console.log('working');
      await new Promise((resolve) => held.signal.addEventListener('abort', resolve));
      console.log('aborted');
      return 'late';
    };
    await once('k', work, { leaseMs: 300 }).then(() => console.log('success'), (error) => console.log(error.code));`;
  const frozen = start(process.execPath, ['--input-type=module', '-e', script], { env: table.environment });
  await frozen.line(/working/);
  frozen.child.kill('SIGSTOP');
  // Others find the claim in doubt, and an operator lets another process run it.
  await until('doubt', async () => (await post(`${api}/v1/claims`, { key: 'k' })).body.state === 'in-doubt');
  await post(`${api}/v1/claims/resolve`, { key: 'k', as: 'absent' });
  assert.equal(await once('k', () => 'taken over', table.options), 'taken over');
  frozen.child.kill('SIGCONT');
  await frozen.exited;
  assert.match(frozen.text, /working\naborted\nlease-lost\n/);
  assert.equal(await once('k', () => 1, table.options), 'taken over', 'the late result changed nothing');
});

test('a killed holder leaves its claim in doubt', async () => {
  const table = await createTable(dynoxide);
  const script = `
    import { once } from ${JSON.stringify(new URL('../dist/esm/index.js', import.meta.url).href)};
    await once('k', () => new Promise(() => setInterval(() => console.log('working'), 50)), { leaseMs: 400 });`;
  const holder = start(process.execPath, ['--input-type=module', '-e', script], { env: table.environment });
  await holder.line(/working/);
  holder.child.kill('SIGKILL');
  await holder.exited;
  await assert.rejects(once('k', () => 'again', table.options), { code: 'in-doubt', message: /the lease lapsed/ });
});

test('arguments outside their limits are refused before anything is sent', async () => {
  const endpoint = await closedAddress();
  const refused = (key, options) => assert.rejects(once(key, () => 1, { endpoint, ...options }), { code: 'invalid-input' });
  for (const key of ['', 'k'.repeat(1025), 17, '\udc00']) await refused(key, {});
  for (const options of [
    { leaseMs: 0 },
    { leaseMs: 3_600_001 },
    { leaseMs: 1.5 },
    { retentionSeconds: 0 },
    { metadata: { a: 1 } },
    { metadata: { ttl: 'x' } },
    { fingerprint: '' },
    { token: 'secret' },
    { api: 'ftp://host' },
    { api: 'http://user:hunter2@host' },
    { api: 'http://host', scope: { tenant: 't', route: 'r' } },
    { table: 'x' },
  ]) {
    await refused('k', options);
  }
});

test('no server, a wrong token and an older server are told apart', async () => {
  const nobody = await closedAddress();
  const run = (options) => once('k', () => 1, { timeoutMs: 10_000, ...options });
  await assert.rejects(run({ api: nobody, timeoutMs: 300 }), { code: 'unreachable', effect: 'none', message: /start `ichido claims`/ });

  const secret = `s3cret-${unique()}`;
  const { api } = await claimsApi('memory:', { ICHIDO_ADMIN_TOKEN: secret });
  await assert.rejects(run({ api }), { code: 'token-refused', message: /needs a token/ });
  await assert.rejects(run({ api, token: 'wrong-hunter2' }), ({ code, message }) => {
    assert.ok(!message.includes('hunter2'));
    return code === 'token-refused' && /does not accept/.test(message);
  });
  assert.equal(await run({ api, token: secret }), 1);

  const older = await serve((request, _, response) => {
    const [status, body] =
      request.url === '/openapi.json'
        ? [200, { info: { version: '0.0.9' } }]
        : [400, { type: '/problems/invalid', detail: 'The body: unknown field `retention_seconds`.' }];
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await assert.rejects(run({ api: older.url }), { code: 'older-server', message: /its version is 0\.0\.9.*update ichido/ });
  const stranger = await serve((_, __, response) => response.writeHead(404).end('<html>not here'));
  await assert.rejects(run({ api: stranger.url }), { code: 'older-server', message: /does not answer like ichido/ });
  const ill = await serve((_, __, response) =>
    response.writeHead(503, { 'content-type': 'application/problem+json' }).end('{"detail":"The ledger is not available."}'),
  );
  await assert.rejects(run({ api: ill.url }), { code: 'unreachable', message: /The ledger is not available/ });
});

test('the claim API gets what it documents, and its outage is passed on', async () => {
  const calls = [];
  const { url } = await serve((request, body, response) => {
    calls.push([request.url, JSON.parse(body)]);
    const granted = { state: 'granted', token: 'ab'.repeat(16), attempt: 2, lease_ms: 5_000, degraded: true };
    const [status, reply] = request.url === '/base/v1/claims' ? [201, granted] : [200, { state: 'done' }];
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(reply));
  });
  const options = { api: `${url}/base/`, leaseMs: 5_000, retentionSeconds: 60, fingerprint: 'f', metadata: { a: 'b' } };
  const result = await once('k', ({ attempt, degraded }) => ({ attempt, degraded }), options);
  assert.deepEqual(result, { attempt: 2, degraded: true });
  const [[, { nonce, ...claim }], complete] = calls;
  assert.match(nonce, /^[0-9a-f]{32}$/);
  assert.deepEqual(claim, { key: 'k', lease_ms: 5_000, retention_seconds: 60, metadata: { a: 'b' }, fingerprint: 'f' });
  assert.deepEqual(complete, ['/base/v1/claims/complete', { key: 'k', token: 'ab'.repeat(16), outcome: result }]);
});

// The shared vectors: this package writes, reads and decides exactly like ichido.
import assert from 'node:assert/strict';
import test from 'node:test';

import { batchKey, sourceEventId, spoolFileName } from '../dist/esm/index.js';
import { fingerprintOf, nonceOf } from '../dist/esm/digest.js';
import { claimKey, decodeClaim, encodeClaim, encodeMark, fitting, markKey, OUTCOME_BYTES, readMark } from '../dist/esm/item.js';
import { DynamoLedger } from '../dist/esm/ledger.js';
import { decideClaim, decideSettle } from '../dist/esm/record.js';
import { createTable, manualClock, SERVERS } from './kit.mjs';
import { actionFromJson, itemFromJson, items, itemToJson, read, recordFromJson } from './vectors.mjs';

const vectors = items();
const records = new Map(vectors.claims.map(({ name, record }) => [name, recordFromJson(record)]));
const byName = (name) => records.get(name) ?? assert.fail(`no claim ${name}`);

test('keys and digests match the vectors', () => {
  for (const { claim, mark, event_key } of vectors.keys) {
    const key = claim ? claimKey({ ...claim, text: claim.key }) : markKey(mark);
    assert.equal(key, event_key);
  }
  for (const { text, digest } of vectors.api.fingerprints) assert.equal(fingerprintOf(text), digest);
  for (const { text, id } of vectors.api.nonces) assert.equal(nonceOf(text), id);
});

test('claims are written and read as in the vectors', () => {
  assert.ok(vectors.claims.length >= 16);
  for (const { name, item } of vectors.claims) {
    assert.deepEqual(itemToJson(encodeClaim(byName(name))), item, name);
    assert.deepEqual(decodeClaim(itemFromJson(item)), byName(name), name);
  }
});

test('marks are written as in the vectors, and recognise their own call', () => {
  for (const { name, request, now, item } of vectors.marks) {
    const { key, nonce, retention_ms: retentionMs, metadata } = request;
    assert.deepEqual(itemToJson(encodeMark({ key, nonce, retentionMs, metadata }, now)), item, name);
    assert.equal(readMark(item, { nonce }), undefined, 'the same call is new again');
    const seen = readMark(item, { nonce: 'other' });
    assert.deepEqual(seen, { firstSeen: Math.floor(now / 1000) * 1000, metadata }, name);
  }
});

test('settlements and decisions match the vectors', () => {
  for (const { name, before, token, action, now, result, after } of vectors.settlements) {
    const record = byName(before);
    const decision = decideSettle(record, token, actionFromJson(action), now);
    assert.equal(decision.result.applied ? 'applied' : decision.result.now, result, name);
    const written = decision.write === null ? null : itemToJson(encodeClaim(decision.write ?? record));
    assert.deepEqual(written, after, name);
  }
  for (const { name, before, request, now, result } of vectors.decisions) {
    const { caller, ...rest } = request;
    const full = { ...byName(before), ...rest, token: '0f'.repeat(16), caller: caller ?? undefined };
    assert.equal(decideClaim(byName(before), full, now).result.kind, result, name);
  }
});

test('a claim that an operator erased is read by its hash', () => {
  const { item } = vectors.claims.find(({ name }) => name === 'done, outcome not kept');
  const hash = item.event_key.S.slice('ichido#'.length);
  const erased = { ...itemFromJson(item), ichido_key: { S: `erased:${hash}` }, ichido_tenant: { NULL: true }, ichido_route: { NULL: true } };
  assert.equal(decodeClaim(erased).state.kind, 'done');
  const other = { ...erased, ichido_key: { S: `erased:${'0'.repeat(64)}` } };
  assert.throws(() => decodeClaim(other), (error) => error.code === 'item');
});

test('damaged items and later formats are refused by name', () => {
  for (const { name, item, refused } of vectors.refused) {
    assert.throws(
      () => decodeClaim(itemFromJson(item)),
      (error) => error.code === 'item' && error.message.includes(refused) && !error.message.includes('0202'),
      name,
    );
  }
});

for (const server of SERVERS) {
  test(`settlements leave the items of the vectors in the table (${server.name})`, async () => {
    const table = await createTable(server);
    const item = new Map(vectors.claims.map(({ name, item }) => [name, itemFromJson(item)]));
    for (const { name, before, token, action, now, result, after } of vectors.settlements) {
      const ledger = new DynamoLedger({ ...table.options, clock: manualClock(now) });
      await table.put(item.get(before));
      const { key } = byName(before);
      const settled = await ledger.settle(key, token, actionFromJson(action));
      assert.equal(settled.applied ? 'applied' : settled.now, result, name);
      const left = await table.get(claimKey(key));
      assert.deepEqual(left === undefined ? null : itemToJson(left), after, name);
    }
  });
}

test('an outcome that is too large becomes a tombstone', () => {
  const largest = { kept: new Uint8Array(OUTCOME_BYTES) };
  assert.equal(fitting(largest), largest);
  const { tombstone } = fitting({ kept: new Uint8Array(OUTCOME_BYTES + 1) });
  assert.equal(tombstone, 'the outcome has 358401 bytes; a dynamodb: ledger keeps at most 358400');
});

test('usage ids and batch keys match the vectors', () => {
  const { source_event_ids: ids, batch_keys: keys } = read('crates/usage/tests/vectors/event-ids.json');
  assert.equal(ids.length, 10);
  for (const { name, input, sorted, fixed_order, refused } of ids) {
    if (refused) {
      assert.throws(() => sourceEventId(input), { code: 'invalid-input', message: /ambiguous/ }, name);
      continue;
    }
    assert.equal(sourceEventId(input), sorted, name);
    assert.equal(sourceEventId(input, 'fixed-order'), fixed_order, name);
  }
  assert.ok(keys.length >= 7);
  for (const { name, input, output } of keys) assert.equal(batchKey(input), output, name);
  assert.equal(batchKey(['\u{1f600}', '\uff5e']), batchKey(['\uff5e', '\u{1f600}']));
});

test('values that have no id are refused by field', () => {
  const good = { usage_date: '2025-11-29', provider: 'openai', model: 'gpt-4.1', app_id: 'a', user_id: 'u' };
  for (const [change, field] of [
    [{ usage_date: '2025-02-30' }, 'usage_date'],
    [{ usage_date: '20251129' }, 'usage_date'],
    [{ provider: '' }, 'provider'],
    [{ model: 'a\nb' }, 'model'],
    [{ user_id: '\ud800' }, 'user_id'],
    [{ model: 'm'.repeat(300) }, 'source_event_id'],
    [{ app_id: 7 }, 'app_id'],
  ]) {
    assert.throws(() => sourceEventId({ ...good, ...change }), { code: 'invalid-input', message: new RegExp(`^${field}`) });
  }
});

test('spool files are named as ichido names them', () => {
  const at = new Date('2025-01-18T12:05:30.250Z');
  const key = 'a3f2e1b9c4d5aaaaaaaa';
  assert.equal(spoolFileName({ at, key }), 'spool_20250118T120530Z_a3f2e1b9c4d5.json');
  assert.equal(
    spoolFileName({ at: at.getTime(), key, prefix: 'failed', copy: 2, gzip: true }),
    'failed_20250118T120530Z_a3f2e1b9c4d5_2.json.gz',
  );
  assert.equal(spoolFileName({ at, key: '' }), 'spool_20250118T120530Z_none.json');
  assert.equal(spoolFileName({ at, key: 'ab/../x' }), 'spool_20250118T120530Z_ab.json');
  assert.throws(() => spoolFileName({ at: 'yesterday', key }), { code: 'invalid-input' });
});

// Requests with a key: the same key and the same bytes on each try, and an error where a retry would be a guess.
import assert from 'node:assert/strict';
import test from 'node:test';

import { idempotentFetch } from '../dist/esm/index.js';
import { closedAddress, ichido, serve } from './kit.mjs';

const fast = { backoffMs: 1 };

/** A server that answers with each of these in turn, then with the last one. */
async function answering(...answers) {
  const requests = [];
  const { url } = await serve((request, body, response) => {
    requests.push({ method: request.method, key: request.headers['idempotency-key'], body: body.toString('latin1'), headers: request.headers });
    const answer = answers[Math.min(requests.length, answers.length) - 1];
    if (answer === 'cut') return response.destroy();
    if (answer === 'hang') return undefined;
    const { status = 200, headers = {}, body: text = '' } = answer;
    return response.writeHead(status, headers).end(text);
  });
  return { url, requests };
}

const problem = (status, code, headers = {}) => ({
  status,
  headers: { 'content-type': 'application/problem+json', ...headers },
  body: JSON.stringify({ type: `/.well-known/idempotency/${code}`, title: code, detail: `Detail of ${code}.` }),
});

test('every try has the same key, bytes and headers', async () => {
  const { url, requests } = await answering('cut', problem(502, 'upstream-unreachable'), { status: 503 }, { status: 201, body: 'made' });
  const form = new FormData();
  form.set('qty', '2');
  const response = await idempotentFetch(url, { method: 'POST', body: form, headers: { authorization: 'Bearer t' } }, fast);
  assert.deepEqual([response.status, await response.text()], [201, 'made']);
  assert.equal(requests.length, 4);
  assert.match(requests[0].key, /^"[0-9a-f-]{36}"$/);
  for (const { key, body, headers } of requests) {
    assert.equal(key, requests[0].key);
    assert.equal(body, requests[0].body, 'a form is serialised once');
    assert.equal(headers['content-type'], requests[0].headers['content-type']);
    assert.equal(headers.authorization, 'Bearer t');
  }
  assert.match(requests[0].body, /name="qty"/);
});

test('each call without a key is a new operation, and a given key is used', async () => {
  const { url, requests } = await answering({});
  await idempotentFetch(url, { method: 'POST' }, fast);
  await idempotentFetch(url, { method: 'POST' }, fast);
  assert.notEqual(requests[0].key, requests[1].key);
  await idempotentFetch(url, { method: 'PATCH' }, { key: 'order "17"' });
  assert.equal(requests[2].key, '"order \\"17\\""');
  await idempotentFetch(url, { method: 'POST', headers: { 'Idempotency-Key': 'as-it-is' } });
  assert.equal(requests[3].key, 'as-it-is');
  await idempotentFetch(new Request(url, { method: 'POST', body: 'x' }));
  assert.equal(requests[4].body, 'x');
  await idempotentFetch(url, { method: 'PUT', body: 'x' }, { key: 'k' });
  assert.equal(requests[5].key, '"k"');
});

test('POST and PATCH get a key; the others may be repeated anyway', async () => {
  const { url, requests } = await answering({});
  for (const method of ['POST', 'PATCH', 'GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE']) await idempotentFetch(url, { method });
  const keyed = requests.filter(({ key }) => key !== undefined).map(({ method }) => method);
  assert.deepEqual(keyed, ['POST', 'PATCH']);
  const nobody = await closedAddress();
  for (const [method, effect] of [['GET', 'none'], ['DELETE', 'unknown']]) {
    await assert.rejects(idempotentFetch(nobody, { method }, { ...fast, attempts: 1 }), { code: 'unreachable', effect });
  }
});

test('a request in flight is waited for, as Retry-After says', async () => {
  const { url, requests } = await answering(problem(409, 'in-flight', { 'retry-after': '1' }), { status: 201 });
  const waits = [];
  const response = await idempotentFetch(url, { method: 'POST' }, { ...fast, attempts: 1, onRetry: ({ waitMs }) => waits.push(waitMs) });
  assert.equal(response.status, 201);
  assert.deepEqual([requests.length, waits], [2, [1000]]);

  const long = await answering(problem(409, 'in-flight', { 'retry-after': '3600' }));
  await assert.rejects(idempotentFetch(long.url, { method: 'POST' }, { key: 'k', patienceMs: 500 }), (error) => {
    assert.deepEqual([error.code, error.effect, error.key, error.response.status], ['in-flight', 'none', 'k', 409]);
    return true;
  });
  assert.equal(long.requests.length, 1);
});

test('what a retry cannot settle is a typed error, and is not sent again', async () => {
  for (const [answer, code, effect] of [
    [problem(409, 'in-doubt'), 'in-doubt', 'unknown'],
    [problem(409, 'answer-not-kept'), 'outcome-not-kept', 'done'],
    [problem(422, 'key-reused'), 'key-reused', 'none'],
    [problem(409, 'caller-changed'), 'caller-changed', 'none'],
  ]) {
    const { url, requests } = await answering(answer);
    await assert.rejects(idempotentFetch(url, { method: 'POST' }, { ...fast, key: 'k1' }), (error) => {
      assert.deepEqual([error.code, error.effect, error.key], [code, effect, 'k1']);
      return true;
    });
    assert.equal(requests.length, 1, code);
  }
});

test('final answers are returned, with their bodies', async () => {
  for (const [answer, sent] of [
    [{ status: 400, body: 'bad' }, 1],
    [{ status: 409, body: 'a conflict of the API' }, 1],
    [{ status: 500, body: 'failed' }, 1],
    [{ status: 503, headers: { 'idempotency-replayed': 'true' }, body: 'first answer' }, 1],
    [{ status: 503, headers: { 'x-should-retry': 'false' }, body: 'no' }, 1],
    [problem(400, 'key-invalid'), 1],
    [{ status: 429, body: 'slow' }, 3],
    [{ status: 500, headers: { 'stripe-should-retry': 'true' }, body: 'again' }, 3],
  ]) {
    const { url, requests } = await answering(answer);
    const response = await idempotentFetch(url, { method: 'POST' }, { ...fast, attempts: 3 });
    assert.deepEqual([response.status, await response.text()], [answer.status, answer.body]);
    assert.equal(requests.length, sent, JSON.stringify(answer));
  }
});

test('no response at all is an error that keeps the key', async () => {
  const nobody = await closedAddress();
  const call = idempotentFetch(nobody, { method: 'POST' }, { ...fast, key: 'k', attempts: 2 });
  await assert.rejects(call, { code: 'unreachable', effect: 'unknown', key: 'k', message: /same key/ });
  const { url, requests } = await answering('hang', { status: 201 });
  const response = await idempotentFetch(url, { method: 'POST' }, { ...fast, timeoutMs: 1_000 });
  assert.equal(response.status, 201);
  assert.equal(requests[0].key, requests[1].key);
});

test('an abort ends the request and the wait at once', async () => {
  const { url, requests } = await answering('hang');
  const reason = new Error('the user left');
  const waiting = new AbortController();
  const call = idempotentFetch(url, { method: 'POST', signal: waiting.signal }, fast);
  setTimeout(() => waiting.abort(reason), 20);
  await assert.rejects(call, reason);
  assert.ok(requests.length <= 1);
  const busy = await answering({ status: 503, headers: { 'retry-after': '30' } });
  const pausing = new AbortController();
  const onRetry = () => setImmediate(() => pausing.abort(reason));
  await assert.rejects(idempotentFetch(busy.url, { method: 'POST', signal: pausing.signal }, { onRetry }), reason);
  assert.equal(busy.requests.length, 1);
});

test('invalid requests are refused before anything is sent', async () => {
  await assert.rejects(idempotentFetch('not a url', {}), { code: 'invalid-input' });
  await assert.rejects(idempotentFetch('http://127.0.0.1:1', { method: 'POST' }, { key: '鍵' }), { code: 'invalid-input' });
  const both = { method: 'POST', headers: { 'idempotency-key': 'a' } };
  await assert.rejects(idempotentFetch('http://127.0.0.1:1', both, { key: 'b' }), { code: 'invalid-input' });
});

test('the gateway runs a request once, however often it is sent', async () => {
  const orders = await answering('cut', { status: 201, body: 'order 1' });
  const gateway = await ichido(['gateway', '--upstream', orders.url, '--listen', '127.0.0.1:0', '--admin', 'off', '--ledger', 'memory:']);
  const send = (body, key) => idempotentFetch(`${gateway.api}/orders`, { method: 'POST', body }, { ...fast, key });
  // The upstream broke off: nobody knows whether it took the order.
  await assert.rejects(send('one', 'k1'), { code: 'in-doubt' });
  assert.equal(await (await send('two', 'k2')).text(), 'order 1');
  const replay = await send('two', 'k2');
  assert.deepEqual([await replay.text(), replay.headers.get('idempotency-replayed')], ['order 1', 'true']);
  await assert.rejects(send('three', 'k2'), { code: 'key-reused' });
  assert.equal(orders.requests.length, 2);
});

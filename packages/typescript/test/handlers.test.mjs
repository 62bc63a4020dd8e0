// The middleware for Bolt and the wrappers for Lambda.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import test, { after } from 'node:test';

import bolt from '@slack/bolt';

import { deduplicateEvents, NothingHappened, onceBatchHandler, onceHandler } from '../dist/esm/index.js';
import { createTable, SERVERS } from './kit.mjs';

const [dynoxide] = SERVERS;
const SECRET = 'a signing secret';

/** A bot with the middleware, as it runs in production: real Bolt, a signed request for each event. */
async function bot(options) {
  const handled = [];
  const duplicates = [];
  const app = new bolt.App({
    signingSecret: SECRET,
    authorize: async () => ({ botToken: 'xoxb-test', botId: 'B1', botUserId: 'U0' }),
    processBeforeResponse: true,
    logLevel: bolt.LogLevel.ERROR,
  });
  app.use(deduplicateEvents({ ...options, onDuplicate: (id, { reason }) => duplicates.push([id, reason]) }));
  app.event('file_shared', async ({ body }) => void handled.push(body.event_id));
  app.command('/hello', async ({ ack }) => ack('hello'));
  const server = await app.start(0);
  after(() => app.stop());
  const url = `http://127.0.0.1:${server.address().port}/slack/events`;
  const send = async (body, type = 'application/json') => {
    const timestamp = Math.floor(Date.now() / 1000);
    const signature = `v0=${createHmac('sha256', SECRET).update(`v0:${timestamp}:${body}`).digest('hex')}`;
    const headers = { 'content-type': type, 'x-slack-request-timestamp': String(timestamp), 'x-slack-signature': signature };
    const response = await fetch(url, { method: 'POST', headers, body });
    return { status: response.status, text: await response.text() };
  };
  return { handled, duplicates, send };
}

const fileShared = (id) =>
  JSON.stringify({
    type: 'event_callback',
    team_id: 'T1',
    event_id: id,
    event: { type: 'file_shared', file_id: 'F1', channel_id: 'C1', user_id: 'U1', event_ts: '1.0' },
  });

test('Bolt handles an event once, across instances, and acknowledges each delivery', async () => {
  const table = await createTable(dynoxide);
  const [one, other] = [await bot(table.options), await bot(table.options)];
  for (const { send } of [one, one, other]) assert.equal((await send(fileShared('Ev1'))).status, 200);
  assert.deepEqual([...one.handled, ...other.handled], ['Ev1']);
  assert.equal(one.duplicates.length + other.duplicates.length, 2);
  const { file_id, channel_id, user_id } = await table.get('Ev1');
  assert.deepEqual([file_id, channel_id, user_id], [{ S: 'F1' }, { S: 'C1' }, { S: 'U1' }]);
  const command = new URLSearchParams({ command: '/hello', team_id: 'T1', user_id: 'U1', channel_id: 'C1' }).toString();
  for (let sent = 0; sent < 2; sent += 1) {
    const { status, text } = await one.send(command, 'application/x-www-form-urlencoded');
    assert.deepEqual([status, text], [200, 'hello'], 'what has no event id passes each time');
  }
});

test('a handler runs once for each key, and a repeated event gets the first result', async () => {
  const table = await createTable(dynoxide);
  let runs = 0;
  const handler = onceHandler(
    async (event, context, held) => ({ order: event.id, by: context.awsRequestId, run: (runs += held.attempt) }),
    { ...table.options, key: (event) => event.id },
  );
  const first = await handler({ id: 'order-1' }, { awsRequestId: 'r1' });
  assert.deepEqual(first, { order: 'order-1', by: 'r1', run: 1 });
  assert.deepEqual(await handler({ id: 'order-1' }, { awsRequestId: 'r2' }), first);
  await assert.rejects(handler({}, {}), { code: 'invalid-input', message: /no key/ });
});

const message = (id, queue = 'orders') => ({ messageId: id, body: id, eventSourceARN: `arn:aws:sqs:us-east-1:1:${queue}` });
const failures = (...ids) => ({ batchItemFailures: ids.map((itemIdentifier) => ({ itemIdentifier })) });

test('only messages that failed are delivered again', async () => {
  const table = await createTable(dynoxide);
  const ran = [];
  const errors = [];
  const handler = onceBatchHandler(
    (record) => {
      ran.push(record.messageId);
      if (record.messageId === 'broken') throw new Error('timeout');
      if (record.messageId === 'later' && ran.filter((id) => id === 'later').length === 1) throw new NothingHappened('busy');
    },
    { ...table.options, onFailure: (record, { code }) => errors.push([record.messageId, code]) },
  );
  const event = { Records: ['good', 'broken', 'later', 'fine'].map((id) => message(id)) };
  assert.deepEqual(await handler(event, {}), failures('broken', 'later'));
  assert.deepEqual(errors.sort(), [['broken', 'in-doubt'], ['later', 'nothing-happened']]);
  // The whole batch again, as after a timeout: what was done is not done again, and what is in doubt stays so.
  assert.deepEqual(await handler(event, {}), failures('broken'));
  assert.deepEqual(ran.sort(), ['broken', 'fine', 'good', 'later', 'later']);
  await assert.rejects(handler({}, {}), { code: 'invalid-input' });
});

test('in a FIFO queue nothing overtakes a message that failed', async () => {
  const table = await createTable(dynoxide);
  const ran = [];
  const handler = onceBatchHandler(
    (record) => {
      ran.push(record.messageId);
      if (record.messageId === 'b') throw new NothingHappened('busy');
    },
    { ...table.options, onFailure: () => undefined },
  );
  const event = { Records: ['a', 'b', 'c'].map((id) => message(id, 'orders.fifo')) };
  assert.deepEqual(await handler(event, {}), failures('b', 'c'));
  assert.deepEqual(ran, ['a', 'b']);
});

// What the tests share: servers, tables, a proxy that breaks things, ichido processes.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import http from 'node:http';
import { after } from 'node:test';

import { CreateTableCommand, DynamoDBClient, GetItemCommand, PutItemCommand, ScanCommand } from '@aws-sdk/client-dynamodb';

process.env.AWS_ACCESS_KEY_ID ??= 'test';
process.env.AWS_SECRET_ACCESS_KEY ??= 'test';
process.env.AWS_REGION ??= 'us-east-1';

/** A variable that the test run must set. */
export function required(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is not set; the tests run against real servers`);
  return value;
}

/** Both DynamoDB servers: dynoxide, and Amazon's own, which does not return the item of a failed condition. */
export const SERVERS = [
  { name: 'dynoxide', endpoint: required('ICHIDO_TEST_DYNAMODB_URL') },
  { name: 'amazon', endpoint: required('ICHIDO_TEST_DYNAMODB_LOCAL_URL') },
];

export const unique = () => randomBytes(6).toString('hex');

/** A new table on a server. `options` are those of this package. */
export async function createTable({ endpoint }) {
  const table = `ts-${unique()}`;
  const client = new DynamoDBClient({ endpoint, region: 'us-east-1' });
  await client.send(
    new CreateTableCommand({
      TableName: table,
      BillingMode: 'PAY_PER_REQUEST',
      AttributeDefinitions: [{ AttributeName: 'event_key', AttributeType: 'S' }],
      KeySchema: [{ AttributeName: 'event_key', KeyType: 'HASH' }],
    }),
  );
  return {
    table,
    endpoint,
    options: { table, endpoint, region: 'us-east-1', timeoutMs: 30_000, tryTimeoutMs: 10_000 },
    ledger: `dynamodb://${table}?region=us-east-1&endpoint=${endpoint}`,
    environment: { DEDUP_TABLE_NAME: table, AWS_ENDPOINT_URL_DYNAMODB: endpoint, AWS_REGION: 'us-east-1' },
    async get(key) {
      const input = { TableName: table, Key: { event_key: { S: key } }, ConsistentRead: true };
      return (await client.send(new GetItemCommand(input))).Item;
    },
    put: (item) => client.send(new PutItemCommand({ TableName: table, Item: item })),
    async scan() {
      return (await client.send(new ScanCommand({ TableName: table, ConsistentRead: true }))).Items;
    },
  };
}

/** Waits for a condition. */
export async function until(what, condition, patienceMs = 60_000) {
  const deadline = Date.now() + patienceMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < deadline, `timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** An HTTP server on a free port. */
export async function serve(handler) {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    try {
      await handler(request, Buffer.concat(chunks), response);
    } catch (error) {
      response.destroy(error);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, server };
}

/** An address on which nobody listens. */
export async function closedAddress() {
  const server = http.createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  await new Promise((resolve) => server.close(resolve));
  return url;
}

/**
 * A proxy in front of a server. `fault(call)` decides about each call: undefined passes; 'lose-reply' lets the server
 * apply it and cuts the connection; 'lose-request' cuts it first; an object answers in its place.
 */
export async function proxy(target, fault) {
  const calls = [];
  const { url } = await serve(async (request, body, response) => {
    const name = request.headers['x-amz-target']?.split('.')[1] ?? request.url;
    const call = { name, body: body.toString(), number: calls.length };
    calls.push(call);
    const what = await fault(call);
    if (what === 'lose-request') return response.destroy();
    if (typeof what === 'object' && what.status) {
      response.writeHead(what.status, { 'content-type': 'application/x-amz-json-1.0', ...what.headers });
      return response.end(JSON.stringify(what.body ?? {}));
    }
    const { host, connection, ...headers } = request.headers;
    const reply = await fetch(target + request.url, { method: request.method, headers, body });
    const bytes = Buffer.from(await reply.arrayBuffer());
    if (what === 'lose-reply') return response.destroy();
    response.writeHead(reply.status, { 'content-type': reply.headers.get('content-type') ?? '', ...what?.headers });
    response.end(bytes);
  });
  return { url, calls };
}

export const throttled = {
  status: 400,
  body: { __type: 'com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException', message: 'slow down' },
};
export const denied = {
  status: 400,
  body: { __type: 'com.amazon.coral.service#AccessDeniedException', message: 'not authorized to perform: dynamodb:PutItem' },
};

/** Settings of this test run that must not reach a child. */
const CLEAN = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(ICHIDO_|DEDUP_|EXTERNAL_API_)/.test(name)));

/** A child process whose lines of output can be waited for. It is killed when the tests end. */
export function start(program, args, { env = {}, cwd } = {}) {
  const child = spawn(program, args, { env: { ...CLEAN, NODE_NO_WARNINGS: '1', ...env }, stdio: ['pipe', 'pipe', 'pipe'], ...(cwd ? { cwd } : {}) });
  const output = { text: '' };
  child.stdout.on('data', (data) => (output.text += data));
  child.stderr.on('data', (data) => (output.text += data));
  const exited = new Promise((resolve) => child.on('exit', (code, signal) => resolve({ code, signal })));
  after(() => child.kill('SIGKILL'));
  return {
    child,
    exited,
    get text() {
      return output.text;
    },
    async line(pattern) {
      return until(`${pattern} in the output of ${program} ${args[0]}: ${output.text}`, () => {
        assert.ok(child.exitCode === null || pattern.test(output.text), `${program} ended early: ${output.text}`);
        return pattern.exec(output.text);
      });
    },
  };
}

/** An `ichido` process, ready. */
export async function ichido(args, env = {}) {
  const settings = { LOG_LEVEL: 'warn', ICHIDO_LEDGER_TIMEOUT_MS: '60000', ...env };
  const process = start(required('ICHIDO_TEST_BINARY'), args, { env: settings });
  const [, address] = await process.line(/listening on (?:http:\/\/)?([0-9.]+:\d+)/);
  return { ...process, api: `http://${address}` };
}

/** The claim API on a ledger. */
export const claimsApi = (ledger, env) => ichido(['claims', '--listen', '127.0.0.1:0', '--ledger', ledger], env);

/** Posts JSON. */
export async function post(url, body, headers = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
}

/** Clocks that a test moves. */
export function manualClock(now = Date.now()) {
  const clock = { wall: now, at: 0, now: () => clock.wall, steady: () => clock.at };
  clock.advance = (ms) => {
    clock.wall += ms;
    clock.at += ms;
  };
  return clock;
}

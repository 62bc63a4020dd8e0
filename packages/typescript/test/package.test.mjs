// The package as users get it: packed, installed into an empty directory, required and imported.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test, { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';

import { createTable, serve, SERVERS, start } from './kit.mjs';

const HERE = fileURLToPath(new URL('..', import.meta.url));
const EXPORTS = [
  'EventDeduplicationService',
  'HybridDeduplicationService',
  'once',
  'idempotentFetch',
  'deduplicateEvents',
  'onceHandler',
  'onceBatchHandler',
  'sourceEventId',
  'batchKey',
  'spoolFileName',
  'NothingHappened',
  'InDoubtError',
];
const directory = mkdtempSync(join(tmpdir(), 'ichido-pack-'));
const app = join(directory, 'app');
after(() => rmSync(directory, { recursive: true, force: true }));

before(() => {
  const packed = execFileSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', directory], { cwd: HERE });
  const [{ filename }] = JSON.parse(packed);
  mkdirSync(app);
  writeFileSync(join(app, 'package.json'), '{ "private": true }');
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', join(directory, filename)], { cwd: app, stdio: 'pipe' });
});

/** Installs what a bot has anyway. */
function installSdk() {
  const modules = dirname(dirname(dirname(createRequire(import.meta.url).resolve('@aws-sdk/client-dynamodb/package.json'))));
  symlinkSync(join(modules, '@aws-sdk'), join(app, 'node_modules', '@aws-sdk'));
}

function run(file, text, env = {}) {
  writeFileSync(join(app, file), text);
  return execFileSync(process.execPath, [file], { cwd: app, env: { ...process.env, ...env }, encoding: 'utf8' });
}

test('the package contains the build, and nothing else', () => {
  const listed = execFileSync('npm', ['pack', '--ignore-scripts', '--dry-run', '--json'], { cwd: HERE });
  const files = JSON.parse(listed)[0].files.map(({ path }) => path);
  const others = files.filter((path) => !path.startsWith('dist/'));
  assert.deepEqual(others.sort(), ['README.md', 'package.json']);
  for (const build of ['dist/esm/index.js', 'dist/esm/index.d.ts', 'dist/cjs/index.js', 'dist/cjs/index.d.ts']) assert.ok(files.includes(build));
});

test('it can be required and imported, and both are the same', () => {
  const list = `const wanted = ${JSON.stringify(EXPORTS)}; console.log(wanted.filter((name) => typeof ichido[name] !== 'function').join());`;
  assert.equal(run('a.cjs', `const ichido = require('ichido');\n${list}`), '\n');
  assert.equal(run('a.mjs', `import * as ichido from 'ichido';\n${list}`), '\n');
});

test('without the AWS SDK it loads, and says what to install when it needs it', () => {
  const text = `
    const { EventDeduplicationService, batchKey } = require('ichido');
    console.log(batchKey([]).length);
    new EventDeduplicationService().checkAndMarkProcessed('Ev1', {}).catch((error) => console.log(error.code, error.message));`;
  assert.match(run('b.cjs', text), /^0\nmissing-package .*npm install @aws-sdk\/client-dynamodb\n$/);
});

test('a bot changes one require', async () => {
  installSdk();
  const table = await createTable(SERVERS[0]);
  // The code of a bot, word for word, except for the line that loads the service.
  const bot = `
const { EventDeduplicationService } = require('ichido');
const deduplicationService = new EventDeduplicationService();

async function onFileShare(eventId, fileId, message, context, logger) {
const eventKey = eventId || \`\${fileId}_\${message.ts}\`;
const metadata = {
  file_id: fileId,
  channel_id: message.channel,
  user_id: message.user,
  lambda_instance_id: context.awsRequestId
};

const { isNew, reason } = await deduplicationService.checkAndMarkProcessed(eventKey, metadata);
if (!isNew) {
  logger.info(\`Duplicate event detected (key: \${eventKey}), reason: \${reason}\`);
  return;
}
  logger.info('handled ' + eventKey);
}

(async () => {
  const message = { channel: 'C1', user: 'U1', ts: '1718000000.000100' };
  for (const id of ['Ev1', 'Ev1', undefined, undefined]) await onFileShare(id, 'F1', message, { awsRequestId: 'r1' }, console);
})();`;
  const output = run('bot.cjs', bot, table.environment);
  assert.deepEqual(output.trim().split('\n'), [
    'handled Ev1',
    'Duplicate event detected (key: Ev1), reason: Already processed by another instance',
    'handled F1_1718000000.000100',
    'Duplicate event detected (key: F1_1718000000.000100), reason: Already processed by another instance',
  ]);
});

test('the examples of the README run', async () => {
  const table = await createTable(SERVERS[0]);
  const { url } = await serve((_, __, response) => response.writeHead(201).end('made'));
  const blocks = [...readFileSync(join(HERE, 'README.md'), 'utf8').matchAll(/```js\n(.*?)```/gs)].map(([, text]) => text);
  assert.equal(blocks.length, 3);
  const given = "const [order, body] = [{ id: 7, requestId: 'r7' }, '{}']; const charge = async () => ({ id: 'c1' });";
  for (const [number, block] of blocks.entries()) {
    const text = block.replace("'orders'", `'${table.table}'`).replace('https://api.example', url);
    const last = /const (?:\{ (isNew)|(\w+) = await)/.exec(block).slice(1).find(Boolean);
    writeFileSync(join(app, `readme-${number}.cjs`), `(async () => { ${given}\n${text}\nconsole.log(${last}.status ?? ${last}); })();`);
    const example = start(process.execPath, [`readme-${number}.cjs`], { cwd: app, env: table.environment });
    assert.equal((await example.exited).code, 0, example.text);
    assert.equal(example.text, ['true\n', "{ receipt: 'c1' }\n", '201\n'][number]);
  }
});

test('the declarations of both builds compile in strict TypeScript', () => {
  const program = (load) => `
    ${load}
    async function main(): Promise<string> {
      const { isNew, reason } = await new EventDeduplicationService().checkAndMarkProcessed('Ev1', { file_id: 'F1' });
      const receipt: { id: number } = await once('k', async (held) => ({ id: held.attempt }), { leaseMs: 1000 });
      const handler = onceHandler(async (event: { id: string }) => event.id, { key: (event) => event.id });
      const error = new InDoubtError('x');
      return [isNew, reason, receipt.id, await handler({ id: 'a' }, {}), error.code].join();
    }
    void main;`;
  const names = 'EventDeduplicationService, InDoubtError, once, onceHandler';
  writeFileSync(join(app, 'use.mts'), program(`import { ${names} } from 'ichido';`));
  writeFileSync(join(app, 'use.cts'), program(`import { ${names} } from 'ichido';`));
  const require = createRequire(import.meta.url);
  const types = dirname(dirname(require.resolve('@types/node/package.json')));
  const options = { strict: true, noEmit: true, module: 'nodenext', target: 'es2022', types: ['node'], typeRoots: [types] };
  writeFileSync(join(app, 'tsconfig.json'), JSON.stringify({ compilerOptions: options, files: ['use.mts', 'use.cts'] }));
  execFileSync(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', app], { cwd: app, stdio: ['ignore', 'inherit', 'inherit'] });
});

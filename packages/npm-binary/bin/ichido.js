#!/usr/bin/env node
// Runs the program from the platform package that npm installed for this machine, such as ichido-linux-x64.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const platform = `${process.platform}-${process.arch}`;
const name = `ichido-${platform}`;

function fail(reason) {
  console.error(`ichido: ${reason}`);
  process.exit(1);
}

function program() {
  if (!(name in (require('../package.json').optionalDependencies ?? {}))) {
    fail(`there is no program for ${platform} on npm; build it with: cargo install --locked ichido`);
  }
  try {
    return require.resolve(`${name}/bin/ichido`);
  } catch {
    return fail(`the package ${name} is missing; it needs glibc, and npm must not omit optional dependencies`);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' });
// A terminal sends SIGINT to both processes. Passing it on would make it the second one, which exits without draining.
process.on('SIGINT', () => {});
const passedOn = ['SIGTERM', 'SIGHUP'];
for (const signal of passedOn) process.on(signal, () => child.kill(signal));
child.on('error', (error) => fail(`cannot run the program of ${name}: ${error.message}`));
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  // The caller sees the same signal.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

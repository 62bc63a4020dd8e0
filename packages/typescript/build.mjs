// Compiles the package twice, as ES modules and as CommonJS, each with its type declarations.
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
rmSync(`${here}dist`, { recursive: true, force: true });
for (const project of ['tsconfig.json', 'tsconfig.cjs.json']) {
  execFileSync(process.execPath, [tsc, '-p', `${here}${project}`], { stdio: 'inherit' });
}
// The package is of type "module"; this makes Node read the second build as CommonJS.
writeFileSync(`${here}dist/cjs/package.json`, '{ "type": "commonjs" }\n');

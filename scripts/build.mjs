#!/usr/bin/env node
// Builds the package. Usage: node scripts/build.mjs [output folder, default dist]
//
// Three modules of src read files that a bundle of the package does not have. Their built versions hold the contents instead.
import { execFileSync } from 'node:child_process';
import { chmodSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildDashboardApp } from './dashboard-app.mjs';

const projectFolder = join(dirname(fileURLToPath(import.meta.url)), '..');
const outputFolder = resolve(process.argv[2] ?? join(projectFolder, 'dist'));

const tsc = join(projectFolder, 'node_modules/typescript/bin/tsc');
const project = join(projectFolder, 'tsconfig.build.json');
try {
  execFileSync(process.execPath, [tsc, '-p', project, '--outDir', outputFolder], { stdio: 'inherit' });
} catch {
  process.exit(1); // The compiler has printed the errors.
}
embed('database/sql-files.js', 'sqlFiles', readSqlFiles());
embed('package-version.js', 'packageVersion', readPackage().version);
embed('dashboard/app-files.js', 'appFiles', buildDashboardApp());
chmodSync(join(outputFolder, 'cli/main.js'), 0o755);

/** Replaces a module that exports one function of this name by one whose function returns `value`. */
function embed(module, name, value) {
  const file = join(outputFolder, module);
  const exported = [...readFileSync(file, 'utf8').matchAll(/^export (.*)$/gm)].map(([, what]) => what);
  if (exported.length !== 1 || exported[0] !== `function ${name}() {`) {
    throw new Error(`${module} must export the function ${name}() and nothing else; it has: ${exported.join(' ')}`);
  }
  const text = JSON.stringify(value, undefined, 2);
  writeFileSync(file, `const value = ${text};\nexport function ${name}() {\n    return value;\n}\n`);
}

function readSqlFiles() {
  const folder = join(projectFolder, 'migrations');
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.sql'));
  const named = paths.map((path) => [path.split(sep).join('/'), readFileSync(join(folder, path), 'utf8')]);
  return Object.fromEntries(named.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function readPackage() {
  return JSON.parse(readFileSync(join(projectFolder, 'package.json'), 'utf8'));
}

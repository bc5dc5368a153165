#!/usr/bin/env node
// Checks the imports of src/ against the table "Layers" in ARCHITECTURE.md, and that SQL stays where it belongs.
// Usage: node scripts/check-layers.mjs [project folder]
//
// The table is an allow-list. A row names layers: `src/relay` is the folder, `src/publishers/kafka` is kafka.ts and the
// folder kafka/. A file belongs to the longest name that fits. It may import its own layer, the layers and the npm packages
// that its row lists, and modules directly in src/ that have no row. Types count like values.
//
// Three abbreviations keep the table short:
// - In the second column `relay/*` stands for `relay` and every layer whose name begins with `relay/`.
// - A row whose name does not begin with src/ is a set: `stage` in the second column stands for the layers of that row.
// - The row `src/publishers/<broker>` stands for every module of src/publishers that package.json exports and that has no
//   row of its own. It may import the peer dependencies of package.json that no other row lists.
// Cycles between files of one layer are found by Biome (noImportCycles).
import { readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, posix, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync, Visitor } from 'oxc-parser';

/** Where no SQL may be written. */
const sqlRules = [
  { in: 'cli/', fix: 'add a statement to outbox/ and call it' },
  { in: 'dashboard/', fix: 'add a statement to outbox/ and call it' },
  {
    in: 'demo/',
    except: 'demo/order-service',
    fix: 'business tables belong in demo/order-service*.ts, the outbox in outbox/',
  },
];

// All lower or all upper case: `Delete from the queue ...` is a sentence, not a statement.
const sqlStarts = [
  /^\s*select\b[\s\S]*\b(?:from\s+["\w]|now\(|count\(|pg_\w+)/,
  /^\s*insert\s+into\s+["\w]/,
  /^\s*update\s+(?:only\s+)?[\w".]+\s+(?:as\s+\w+\s+)?set\b/,
  /^\s*delete\s+from\s+["\w]/,
  /^\s*with\s+(?:recursive\s+)?["\w]+(?:\s*\([^)]*\))?\s+as\s+(?:not\s+)?(?:materialized\s+)?\(/,
  /^\s*(?:create|alter|drop)\s+(?:table|index|unique|schema|view|function|trigger|type|database|publication)\b/,
  /^\s*(?:truncate\s+["\w]|(?:listen|notify)\s+["\w]+\s*$)/,
].flatMap((pattern) => [pattern, upperCased(pattern)]);

/** The row that stands for all brokers. */
const brokers = 'publishers/<broker>';

const projectFolder = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'));
const sourceFolder = join(projectFolder, 'src');
const layers = readTable();
const files = new Map(listSources().map((file) => [file, parse(file)]));
const problems = [...checkTable(), ...checkImports(), ...checkSql()];

if (problems.length > 0) {
  for (const { at, what, fix } of problems) console.error(`${at}: ${what}\n    Fix: ${fix}.`);
  console.error(`${problems.length} layer ${problems.length === 1 ? 'rule' : 'rules'} broken.`);
  process.exitCode = 1;
} else {
  const imports = [...files.values()].reduce((sum, file) => sum + file.imports.length, 0);
  console.log(`${files.size} files, ${imports} imports, ${layers.size} layers: all imports are allowed.`);
}

/** Every name of the table, relative to src/, with what it may import. */
function readTable() {
  const lines = readFileSync(join(projectFolder, 'ARCHITECTURE.md'), 'utf8').split('\n');
  const start = lines.indexOf('## Layers');
  const rows = new Map();
  const sets = new Map();
  for (const [index, line] of lines.entries()) {
    if (index < start || start === -1) continue;
    if (index > start && line.startsWith('## ')) break;
    if (!line.startsWith('| `')) continue;
    const [names, imports, packages] = line.split('|').slice(1).map(codeSpans);
    for (const name of names) {
      if (name.startsWith('src/')) rows.set(name.slice('src/'.length), { imports, packages, line: index + 1 });
      else sets.set(name, imports);
    }
  }
  addBrokers(rows);
  for (const [name, row] of rows) {
    const listed = row.imports.flatMap((entry) => sets.get(entry)?.filter((layer) => layer !== name) ?? entry);
    row.imports = listed.flatMap((entry) => expand(entry, name, [...rows.keys()]));
  }
  if (rows.size === 0) throw new Error('ARCHITECTURE.md has no table of layers under "## Layers".');
  return rows;
}

/** Replaces the row of all brokers by one for each. */
function addBrokers(rows) {
  const row = rows.get(brokers);
  if (row === undefined) return;
  rows.delete(brokers);
  const { exports = {}, peerDependencies = {} } = JSON.parse(readFileSync(join(projectFolder, 'package.json'), 'utf8'));
  const listed = new Set([...rows.values()].flatMap(({ packages }) => packages));
  const packages = Object.keys(peerDependencies).filter((name) => !listed.has(name));
  for (const { default: file } of Object.values(exports)) {
    const name = /^\.\/dist\/(publishers\/[^/]+)\.js$/.exec(file ?? '')?.[1];
    if (name !== undefined && !rows.has(name)) rows.set(name, { ...row, packages });
  }
}

/** The layers that an entry of the second column stands for. */
function expand(entry, importer, names) {
  if (!entry.endsWith('/*')) return [entry];
  const parent = entry.slice(0, -2);
  const nested = names.filter((name) => name !== importer && covers(parent, name));
  return nested.length > 0 ? nested : [entry];
}

function* checkTable() {
  for (const [name, { imports, line }] of layers) {
    const at = `ARCHITECTURE.md:${line}`;
    if (![...files.keys()].some((file) => covers(name, file))) {
      yield { at, what: `src/${name} does not exist`, fix: 'remove it from the table' };
    }
    const unknown = imports.find((imported) => !layers.has(imported));
    if (unknown) yield { at, what: `lists ${unknown}, which has no row`, fix: 'write the name as in the first column' };
  }
  yield* findCycles();
}

function* findCycles() {
  const state = new Map();
  const path = [];
  const cycles = [];
  const visit = (layer) => {
    state.set(layer, 'open');
    path.push(layer);
    for (const next of layers.get(layer)?.imports ?? []) {
      if (state.get(next) === 'open') cycles.push([...path.slice(path.indexOf(next)), next]);
      else if (!state.has(next)) visit(next);
    }
    path.pop();
    state.set(layer, 'done');
  };
  for (const layer of layers.keys()) if (!state.has(layer)) visit(layer);
  for (const cycle of cycles) {
    const at = `ARCHITECTURE.md:${layers.get(cycle[0]).line}`;
    yield { at, what: `layers import each other: ${cycle.join(' -> ')}`, fix: 'move what both need into one of them' };
  }
}

function* checkImports() {
  for (const [file, { imports }] of files) {
    const layer = layerOf(file);
    for (const { specifier, line } of imports) {
      const at = `src/${file}:${line}`;
      if (specifier.startsWith('.')) yield* checkOwnImport(layer, at, posix.join(posix.dirname(file), specifier));
      else if (!specifier.startsWith('node:')) yield* checkPackage(layer, at, packageName(specifier));
    }
    if (layer === undefined && file.includes('/')) {
      yield { at: `src/${file}`, what: 'belongs to no layer', fix: 'add its folder to the table in ARCHITECTURE.md' };
    }
  }
}

function* checkOwnImport(layer, at, imported) {
  const target = layerOf(imported);
  // A module directly in src/ without a row: every layer may import it, and it imports no layer.
  if (target === layer || (target === undefined && !imported.includes('/'))) return;
  if (layers.get(layer)?.imports.includes(target)) return;
  const from = layer ?? 'a module directly in src/';
  const fix = 'import a layer below, move what both need, or change the table "Layers" in ARCHITECTURE.md';
  yield { at, what: `${from} must not import ${imported}`, fix };
}

function* checkPackage(layer, at, name) {
  if (layers.get(layer)?.packages.includes(name)) return;
  const fix = isBuiltin(name) ? `write node:${name}` : 'use a layer that may, or change the table in ARCHITECTURE.md';
  yield { at, what: `${layer} must not import the package ${name}`, fix };
}

function* checkSql() {
  for (const [file, { literals }] of files) {
    const rule = sqlRules.find(
      ({ in: folder, except }) => file.startsWith(folder) && !(except && file.startsWith(except)),
    );
    if (rule === undefined) continue;
    for (const { text, line } of literals) {
      if (!sqlStarts.some((pattern) => pattern.test(text))) continue;
      const start = text.trim().replace(/\s+/g, ' ').slice(0, 50);
      yield { at: `src/${file}:${line}`, what: `holds SQL (${start} ...)`, fix: rule.fix };
    }
  }
}

/** The imports of a file, `export ... from` and import() included, and its string literals. */
function parse(file) {
  const source = readFileSync(join(sourceFolder, file), 'utf8');
  const { program, errors } = parseSync(file, source);
  if (errors.length > 0) throw new Error(`src/${file}: ${errors[0].message}`);
  const lineOf = (node) => source.slice(0, node.start).split('\n').length;
  const imports = [];
  const literals = [];
  const addImport = ({ source: specifier }) => {
    if (specifier?.type === 'Literal') imports.push({ specifier: specifier.value, line: lineOf(specifier) });
  };
  new Visitor({
    ImportDeclaration: addImport,
    ExportNamedDeclaration: addImport,
    ExportAllDeclaration: addImport,
    ImportExpression: addImport,
    TSImportType: addImport,
    Literal(node) {
      if (typeof node.value === 'string') literals.push({ text: node.value, line: lineOf(node) });
    },
    TemplateLiteral(node) {
      // `${...}` reads as a name.
      literals.push({ text: node.quasis.map(({ value }) => value.cooked ?? '').join('x'), line: lineOf(node) });
    },
  }).visit(program);
  return { imports, literals };
}

function layerOf(file) {
  return [...layers.keys()].filter((name) => covers(name, file)).sort((a, b) => b.length - a.length)[0];
}

function covers(name, file) {
  return file === name || file === `${name}.ts` || file.startsWith(`${name}/`);
}

function codeSpans(cell) {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, text]) => text);
}

function packageName(specifier) {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

function listSources() {
  const paths = readdirSync(sourceFolder, { recursive: true }).map((file) => file.split(sep).join('/'));
  return paths.filter((file) => /\.tsx?$/.test(file)).sort();
}

/** The same pattern for keywords in capitals; character classes and escapes keep their meaning. */
function upperCased(pattern) {
  return new RegExp(
    pattern.source.replace(/\\.|[a-z]+/g, (part) => (part.startsWith('\\') ? part : part.toUpperCase())),
  );
}

#!/usr/bin/env node
// Keeps every line of src/ in its room. Usage: node scripts/check-layers.mjs [project folder]
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scanSource } from './scan-source.mjs';

// Folders and files are relative to src/. A folder ends with a slash; '' is everything.

/** Who may import what, types included: to know a type is to know the room it comes from. */
const importRules = [
  {
    in: 'outbox/',
    never: ['relay/', 'emit/', 'cli/', 'dashboard/', 'telemetry/'],
    fix: 'outbox/ is SQL and rows: pass the value in as an argument, or move the type to outbox/',
  },
  {
    in: 'publishers/',
    only: [
      'publishers/publisher.ts',
      'publishers/key-order.ts',
      'publishers/kafka/',
      'publishers/webhook/',
      'publishers/publisher-options.ts',
      'publishers/server-url.ts',
      'publishers/failure.ts',
      'publishers/import-client.ts',
      'publishers/calls-under-way.ts',
      'publishers/redis/',
      'publishers/rabbitmq/',
      'publishers/nats/',
      'publishers/broker-connection-keeper.ts',
      'publishers/connection-publisher.ts',
      'publishers/aws/',
      'errors.ts',
    ],
    fix: 'a publisher knows the contract in publishers/publisher.ts and its own client, nothing else of Postcommit',
  },
  {
    in: '',
    except: ['testing/'],
    never: ['testing/'],
    fix: 'testing/ is for users’ tests: move what src needs out of it',
  },
  {
    in: '',
    except: ['cli/', 'demo/'],
    never: ['cli/'],
    fix: 'the library must work without the command line: move the shared part to the folder it belongs to',
  },
];

/** Which folder may import which npm package. A package that is not here may be imported nowhere. */
const packageRules = {
  kafkajs: ['publishers/kafka'],
  '@confluentinc/kafka-javascript': ['publishers/kafka'],
  '@platformatic/kafka': ['publishers/kafka'],
  amqplib: ['publishers/rabbitmq'],
  '@nats-io/transport-node': ['publishers/nats'],
  '@nats-io/jetstream': ['publishers/nats'],
  redis: ['publishers/redis'],
  '@aws-sdk/client-sqs': ['publishers/sqs.ts'],
  '@aws-sdk/client-sns': ['publishers/sns.ts'],
  pg: ['database/', 'emit/', 'relay/', 'demo/'],
  commander: ['cli/'],
  jiti: ['cli/'],
  picocolors: ['cli/', 'demo/'],
  '@opentelemetry/api': ['emit/', 'relay/', 'telemetry/'],
  '@standard-schema/spec': ['catalogue/'],
};

/** Where no SQL may be written. */
const sqlRules = [
  { in: 'cli/', fix: 'add a statement to outbox/ and call it' },
  { in: 'dashboard/', fix: 'add a statement to outbox/ and call it' },
  {
    in: 'demo/',
    except: ['demo/order-service'],
    fix: 'business tables belong in demo/order-service*.ts, the outbox in outbox/',
  },
];

// All lower or all upper case: `Delete from the queue …` is a sentence, not a statement.
const sqlStarts = [
  /^\s*select\b[\s\S]*\b(?:from\s+["\w]|now\(|count\(|pg_\w+)/,
  /^\s*insert\s+into\s+["\w]/,
  /^\s*update\s+(?:only\s+)?[\w".]+\s+(?:as\s+\w+\s+)?set\b/,
  /^\s*delete\s+from\s+["\w]/,
  /^\s*with\s+(?:recursive\s+)?["\w]+(?:\s*\([^)]*\))?\s+as\s+(?:not\s+)?(?:materialized\s+)?\(/,
  /^\s*(?:create|alter|drop)\s+(?:table|index|unique|schema|view|function|trigger|type|database|publication)\b/,
  /^\s*(?:truncate\s+["\w]|(?:listen|notify)\s+["\w]+\s*$)/,
].flatMap((pattern) => [pattern, upperCased(pattern)]);

const projectFolder = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'));
const sourceFolder = join(projectFolder, 'src');
const files = new Map(listSources(sourceFolder).map((file) => [file, scanSource(readText(file))]));
const problems = [...checkImports(), ...checkSql(), ...checkCycles()];

if (problems.length > 0) {
  for (const { at, what, fix } of problems) console.error(`${at}: ${what}\n    Fix: ${fix}.`);
  console.error(`${problems.length} layer rule${problems.length === 1 ? '' : 's'} broken.`);
  process.exitCode = 1;
} else {
  const imports = [...files.values()].reduce((sum, file) => sum + file.imports.length, 0);
  console.log(`${files.size} files, ${imports} imports, every one in its room.`);
}

function* checkImports() {
  for (const [file, { imports }] of files) {
    for (const { specifier, line } of imports) {
      const at = `src/${file}:${line}`;
      if (specifier.startsWith('.')) yield* checkOwnImport(file, at, target(file, specifier));
      else if (!specifier.startsWith('node:')) yield* checkPackage(file, at, packageName(specifier));
    }
  }
}

function* checkOwnImport(file, at, imported) {
  for (const rule of importRules) {
    if (!applies(rule, file)) continue;
    const forbidden = rule.only ? !isIn(imported, rule.only) : isIn(imported, rule.never);
    if (forbidden) yield { at, what: `must not import ${imported}`, fix: rule.fix };
  }
}

function* checkPackage(file, at, name) {
  const allowed = packageRules[name];
  if (allowed === undefined) {
    const fix = isBuiltin(name)
      ? `write node:${name}`
      : 'name the folders it belongs to in packageRules (scripts/check-layers.mjs)';
    yield { at, what: `imports the package ${name}, which no rule knows`, fix };
  } else if (!isIn(file, allowed)) {
    yield { at, what: `must not import the package ${name}`, fix: `only ${allowed.join(', ')} may: go through there` };
  }
}

function* checkSql() {
  for (const [file, { literals }] of files) {
    const rule = sqlRules.find((candidate) => applies(candidate, file));
    if (rule === undefined) continue;
    for (const { text, line } of literals) {
      if (!sqlStarts.some((pattern) => pattern.test(text))) continue;
      const start = text.trim().replace(/\s+/g, ' ').slice(0, 50);
      yield { at: `src/${file}:${line}`, what: `holds SQL (${start} …)`, fix: rule.fix };
    }
  }
}

/** Circles of imports that load each other. Types vanish at run time and import() comes later, so neither counts. */
function* checkCycles() {
  const state = new Map();
  const path = [];
  const found = [];
  const visit = (file) => {
    state.set(file, 'open');
    path.push(file);
    for (const { specifier, typeOnly, lazy } of files.get(file).imports) {
      if (typeOnly || lazy || !specifier.startsWith('.')) continue;
      const next = target(file, specifier);
      if (!files.has(next)) continue;
      if (state.get(next) === 'open') found.push([...path.slice(path.indexOf(next)), next]);
      else if (!state.has(next)) visit(next);
    }
    path.pop();
    state.set(file, 'done');
  };
  for (const file of files.keys()) if (!state.has(file)) visit(file);
  for (const circle of found) {
    const fix = 'move what both need into a third file, or make it `import type` if only a type is meant';
    yield { at: `src/${circle[0]}`, what: `circular import ${circle.join(' -> ')}`, fix };
  }
}

function applies(rule, file) {
  return isIn(file, [rule.in]) && !isIn(file, rule.except ?? []);
}

function isIn(file, places) {
  return places.some((place) => file.startsWith(place));
}

function target(file, specifier) {
  return relative(sourceFolder, resolve(sourceFolder, dirname(file), specifier))
    .split(sep)
    .join('/');
}

function packageName(specifier) {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

function listSources(folder) {
  return readdirSync(folder, { recursive: true })
    .map((file) => file.split(sep).join('/'))
    .filter((file) => /\.tsx?$/.test(file) && statSync(join(folder, file)).isFile())
    .sort();
}

function readText(file) {
  return readFileSync(join(sourceFolder, file), 'utf8');
}

/** The same pattern for keywords in capitals; character classes and escapes keep their meaning. */
function upperCased(pattern) {
  return new RegExp(
    pattern.source.replace(/\\.|[a-z]+/g, (part) => (part.startsWith('\\') ? part : part.toUpperCase())),
  );
}

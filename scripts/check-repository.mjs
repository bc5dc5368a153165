#!/usr/bin/env node
// Rules about files rather than code. Usage: node scripts/check-repository.mjs [project folder]
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const sourceLinesMax = 400;
const fileBytesMax = 2 * 1024 * 1024;
const unlisted = new Set(['.git', 'node_modules', 'dist', 'coverage']);

/** Each rule looks at a file and returns what is wrong with a line of it, or nothing. */
const lineRules = [
  {
    // The parts are apart so that this line does not break its own rule.
    pattern: new RegExp(`(?<![\\w.~-])/(?:${['work', 'root', 'home/[\\w.-]+', 'Users/[\\w.-]+'].join('|')})/`),
    problem: 'names a folder of one machine; write a path relative to the project',
  },
  {
    files: /^migrations\/.*\.sql$/,
    pattern: /[\u0080-\uffff]/,
    problem: 'has a character beyond ASCII, which some database encodings lack; write it in ASCII',
  },
  {
    files: /^test\/.*\.ts$/,
    pattern: /\.only\(/,
    problem: 'runs only this test and silently skips the rest of the file; remove .only',
  },
  {
    files: /(^|\/)package-lock\.json$/,
    pattern: /"resolved": "https?:/,
    problem: 'ties the lock file to one registry; npm install with omit-lockfile-registry-resolved=true',
  },
];

const projectFolder = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'));
const files = listFiles();
const problems = [];

for (const file of files) {
  const path = join(projectFolder, file);
  const status = statSync(path, { throwIfNoEntry: false });
  if (!status?.isFile() || status.size > fileBytesMax) continue;
  const text = readFileSync(path, 'utf8');
  if (text.includes('\0')) continue; // Not text.
  const lines = text.split('\n');
  if (/^src\/.*\.tsx?$/.test(file) && lines.length - 1 > sourceLinesMax) {
    problems.push(`${file}: ${lines.length - 1} lines, at most ${sourceLinesMax}; split it by concept`);
  }
  for (const rule of lineRules) {
    if (rule.files && !rule.files.test(file)) continue;
    const index = lines.findIndex((line) => rule.pattern.test(line));
    if (index !== -1) problems.push(`${file}:${index + 1}: ${rule.problem}`);
  }
}

if (problems.length > 0) {
  console.error(problems.join('\n'));
  process.exitCode = 1;
} else {
  console.log(`${files.length} files are in order.`);
}

/** What git has or would take. Without git (an unpacked archive): everything but what is built or installed. */
function listFiles() {
  try {
    const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
    const options = { cwd: projectFolder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] };
    return execFileSync('git', args, options).split('\0').filter(Boolean);
  } catch {
    return walk('');
  }
}

function walk(folder) {
  return readdirSync(join(projectFolder, folder), { withFileTypes: true }).flatMap((entry) => {
    if (unlisted.has(entry.name)) return [];
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
    return entry.isDirectory() ? walk(path) : [path];
  });
}

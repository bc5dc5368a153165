#!/usr/bin/env node
// Finds words and phrases that must not come back, see "Language" in CONTRIBUTING.md.
// Usage: node scripts/check-language.mjs [project folder]
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';

/** What is not allowed, and what to write instead. */
const rules = [
  [/\b(?:is|are|was|were|be|been) away\b/i, 'is down, is unreachable'],
  [/\b(?:is|are|was|were) back\b/i, 'is up again, is reachable again'],
  [/\b(?:hears?|heard)\b/i, 'receives (notifications)'],
  [/\b(?:rings|rung|rang)\b/i, 'notifies'],
  [/\bmend(?:s|ed)?\b/i, 'fix'],
  // `nobody` in quotes is a user of the operating system.
  [/\b(?<![`'])(?:nobody|somebody|anybody|everybody|whoever)\b/i, 'the component: no relay, the caller, the owner'],
  [/\bwho has it\b/i, 'the owner'],
  [/\bstands? twice\b/i, 'appears twice'],
  [/\btrying on\b/i, 'retrying'],
  [/\b(?:is|are) told (?:in|by)\b/i, 'see ... for the contract and the rationale'],
  [/\b(?:looks?|looking) at the books\b/i, 'reads the destination state'],
  [/\bso that people can\b/i, 'nothing: leave it out'],
  [/\bAnswers (?!to\b)/, 'Returns'],
  [/\bbur(?:y|ies|ied|ying)\b/i, 'dead-letter, move to the dead letters'],
  [/\b(?:takes?|took|taken|taking) stock\b/i, 'sample the low-water mark'],
  [/\blets? us in\b/i, 'accepts the login'],
  [/\bbelongs? into\b/i, 'belongs in'],
  [
    /\b(?<!there )(?:is|are) no (?:text|name|ARN|UUID|error|function|object|logger|open transaction)\b/i,
    'is not a ...',
  ],
];

const folders = ['src', 'migrations', 'docs', 'examples', 'test'];
const rootFiles = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md'];
/** It lists the phrases. */
const exempt = ['test/scripts/check-language.test.ts'];

const projectFolder = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'));

const problems = [];
const files = listFiles();
for (const file of files) {
  for (const [index, line] of readFileSync(join(projectFolder, file), 'utf8').split('\n').entries()) {
    for (const [pattern, instead] of rules) {
      const found = pattern.exec(line);
      if (found !== null) problems.push(`${file}:${index + 1}: "${found[0].trim()}". Write: ${instead}`);
    }
  }
}

if (problems.length > 0) {
  console.error(problems.join('\n'));
  console.error(`${problems.length} ${problems.length === 1 ? 'phrase' : 'phrases'} to write in plain English.`);
  process.exitCode = 1;
} else {
  console.log(`${files.length} files, ${rules.length} rules: plain English.`);
}

function listFiles() {
  const inFolders = folders.flatMap((folder) => {
    if (!statSync(join(projectFolder, folder), { throwIfNoEntry: false })) return [];
    const paths = readdirSync(join(projectFolder, folder), { recursive: true }).map((path) => join(folder, path));
    return paths.map((path) => path.split(sep).join('/')).filter((path) => /\.(?:ts|mjs|md|sql)$/.test(path));
  });
  const inRoot = rootFiles.filter((file) => statSync(join(projectFolder, file), { throwIfNoEntry: false }));
  return [...inRoot, ...inFolders].filter((file) => !exempt.includes(file) && !file.includes('node_modules/'));
}

import { readdirSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { createProgram } from '../../src/cli/program.ts';

const root = new URL('../../', import.meta.url);
const pages = readdirSync(new URL('docs/', root), { recursive: true, encoding: 'utf8' })
  .filter((path) => path.endsWith('.md'))
  .map((path) => `docs/${path}`)
  .concat('README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'ARCHITECTURE.md');

const program = createProgram({
  stdout: process.stdout,
  stderr: process.stderr,
  stdin: process.stdin,
  env: {},
} as never);

const block = /^ *```.*\n([\s\S]*?)^ *```/gm;

/** Command lines of a page: lines of code blocks, their comments, and code in a sentence, which may be broken over lines. */
function commandLines(page: string): string[] {
  return commandLinesOf(readFileSync(new URL(page, root), 'utf8'));
}

function commandLinesOf(text: string): string[] {
  const blocks = [...text.matchAll(block)].map(([, content]) => content).join('\n');
  const inBlocks = [...blocks.matchAll(/^ *(?:\$ )?((?:npx )?postcommit [a-z].*)$/gm)];
  const inComments = [...blocks.matchAll(/(?:#|\/\/) (?:.*\W)?((?:npx )?postcommit (?:[a-z]+ )*[a-z]+ --[a-z].*)$/gm)];
  const inSentences = [...text.replace(block, '').matchAll(/`((?:npx\s+)?postcommit\s+[a-z][^`]*)`/g)];
  return [...inBlocks, ...inComments, ...inSentences].map(([, line]) => (line as string).replaceAll(/\s+/g, ' '));
}

/** Says what is wrong with a command line, by what the command line itself declares. */
function mistakeIn(line: string): string | undefined {
  if (!line.startsWith('npx ')) return 'the package is not installed globally: npx is missing';
  const words = wordsOf(line).slice(2);
  let command: Command = program;
  const given: string[] = [];
  const options: string[] = [];
  while (words.length > 0) {
    const word = words.shift() as string;
    const sub = given.length === 0 ? command.commands.find((one) => one.name() === word) : undefined;
    if (sub !== undefined) {
      command = sub;
      continue;
    }
    // `events <id>` is `events show <id>`, say.
    const ofDefault = command.commands.find((one) => one.name() === defaultNameOf(command));
    if (ofDefault !== undefined && word !== '--help') command = ofDefault;
    if (word.startsWith('-')) {
      const [flag = '', value] = word.split(/=(.*)/s);
      const option = [...command.options, ...program.options].find(
        ({ long, short }) => long === flag || short === flag,
      );
      if (option === undefined && !['--help', '-h'].includes(flag)) return `${command.name()} has no ${flag}`;
      if (option?.required && value === undefined && words.shift() === undefined) return `${flag} needs a value`;
      options.push(flag);
    } else {
      given.push(word);
    }
  }
  const taken = command.registeredArguments;
  if (given.length > taken.length && !taken.some(({ variadic }) => variadic) && given[0] !== 'help') {
    return `${command.name()} takes no argument ${given[taken.length]}`;
  }
  if (options.includes('--help')) return undefined;
  const required = taken.filter(({ required }) => required).length;
  if (given.length < required) return `${command.name()} needs ${required} arguments`;
  const isBulk = command.options.some(({ long }) => long === '--all') && taken.some(({ variadic }) => variadic);
  if (isBulk && given.length === 0 && options.length === 0) return `${command.name()} needs ids, conditions or --all`;
  return undefined;
}

/** Of the command that runs when none of its commands is named. */
function defaultNameOf(command: Command): string | undefined {
  return (command as unknown as { _defaultCommandName?: string | null })._defaultCommandName ?? undefined;
}

/** Until a comment, a pipe or a redirection. */
function wordsOf(line: string): string[] {
  const words = line.match(/"[^"]*"|'[^']*'|\S+/g) ?? [];
  const end = words.findIndex((word) => /^(?:#|\||>|&&|;|\\$)/.test(word));
  return end < 0 ? words : words.slice(0, end);
}

test('every command of the docs exists, with its options, and can be copied', () => {
  const lines = pages.flatMap((page) => commandLines(page).map((line) => ({ page, line })));
  expect(lines.length).toBeGreaterThan(150);
  const mistakes = lines.flatMap(({ page, line }) => {
    const mistake = mistakeIn(line);
    return mistake === undefined ? [] : [`${page}: ${line}: ${mistake}`];
  });
  expect(mistakes).toEqual([]);
});

test('commands in comments and over a line break are seen', () => {
  const page = ['`postcommit', 'doctor` says so.', '```sh', 'npm ci # the SQL: postcommit sql --inbox-only', '```'];
  expect(commandLinesOf(page.join('\n'))).toEqual(['postcommit sql --inbox-only', 'postcommit doctor']);
});

test.each([
  ['postcommit migrate', 'the package is not installed globally: npx is missing'],
  ['npx postcommit dead retry', 'retry needs ids, conditions or --all'],
  ['npx postcommit destinations pause events --reason x', 'pause has no --reason'],
  ['npx postcommit dead shwo 5', 'list takes no argument shwo'],
  ['npx postcommit destinations pause', 'pause needs 1 arguments'],
])('%s is found', (line, mistake) => {
  expect(mistakeIn(line)).toBe(mistake);
});

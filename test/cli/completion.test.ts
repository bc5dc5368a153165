import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { unpackDebianPackage } from '../../services/debian-package.ts';
import { findProgram } from '../../services/run-command.ts';
import { runHere } from './fake-terminal.ts';
import { projectFolder } from './run-cli.ts';

const run = promisify(execFile);

/** What Tab offers after each of these lines, by their text. Each shell must offer the same. */
const lines: [line: string, offered: string[], notOffered: string[]][] = [
  ['postcommit st', ['status'], ['dead']],
  ['postcommit dead re', ['retry'], ['replay']],
  ['postcommit --json dead re', ['retry'], ['replay']],
  ['postcommit dead retry --a', ['--aggregate', '--all'], ['--poison']],
  ['postcommit status --oldest', ['--oldest-pending-ms-max'], ['--pending-max']],
  ['postcommit relay --poison ', ['skip', 'block'], ['--poison']],
  ['postcommit completion ', ['bash', 'zsh', 'fish'], ['status']],
];

async function folderWithScript(shell: string): Promise<string> {
  const { code, stdout } = await runHere(['completion', shell]);
  expect(code).toBe(0);
  const folder = projectFolder({});
  writeFileSync(join(folder, 'script'), stdout);
  return folder;
}

/** The shell and its environment: the machine's own, or that of the Debian package. */
async function findShell(name: string): Promise<{ program: string; env: Record<string, string>; root: string }> {
  const { PATH = '' } = process.env;
  const program = await findProgram(name);
  if (program !== undefined) return { program, env: { PATH }, root: '' };
  const wish = { package: name, dependencies: new RegExp(`^${name}-common$`) };
  const { root, libraryFolders } = await unpackDebianPackage(wish, () => {});
  const folder = name === 'zsh' ? 'bin' : 'usr/bin';
  return { program: join(root, folder, name), env: { PATH, LD_LIBRARY_PATH: libraryFolders.join(':') }, root };
}

function expectOffers(found: Record<string, string[]>): void {
  for (const [line, offered, notOffered] of lines) {
    expect(found[line], line).toEqual(expect.arrayContaining(offered));
    for (const word of notOffered) expect(found[line], line).not.toContain(word);
  }
}

test('bash completes commands, options and choices', async () => {
  const cwd = await folderWithScript('bash');
  const found: Record<string, string[]> = {};
  for (const [line] of lines) {
    const script = `source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _postcommit; echo "\${COMPREPLY[*]}"`;
    const { stdout } = await run('bash', ['-c', script, 'bash', ...line.split(' ')], { cwd });
    found[line] = stdout.trim().split(' ');
  }
  expectOffers(found);
});

test('zsh completes commands, options and choices', async () => {
  const { program, env } = await findShell('zsh');
  const cwd = await folderWithScript('zsh');
  const found: Record<string, string[]> = {};
  for (const [line] of lines) {
    // Without the functions of its completion system, which wants a terminal: these print what it would be given.
    const script = [
      `compdef() { :; }; _describe() { print -l -- "\${items[@]%%:*}"; }; compadd() { print -l -- "\${@[2,-1]}"; }`,
      'source ./script; words=("$@"); CURRENT=$#; _postcommit',
    ].join('\n');
    const { stdout } = await run(program, ['-f', '-c', script, 'zsh', ...line.split(' ')], { cwd, env });
    const last = line.split(' ').at(-1) ?? '';
    found[line] = stdout.split('\n').filter((word) => word.startsWith(last));
  }
  expectOffers(found);
}, 300_000);

test('fish completes commands, options and choices', async () => {
  const { program, env } = await findShell('fish');
  const cwd = await folderWithScript('fish');
  const found: Record<string, string[]> = {};
  for (const [line] of lines) {
    const script = `source ./script; complete -C ${JSON.stringify(line)}`;
    const { stdout } = await run(program, ['--no-config', '-c', script], { cwd, env: { ...env, HOME: cwd } });
    found[line] = stdout.split('\n').map((each) => each.split('\t')[0] ?? '');
  }
  expectOffers(found);
}, 300_000);

test('another shell is refused', async () => {
  expect(await runHere(['completion', 'tcsh'])).toMatchObject({ code: 2 });
});

import { execFile } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const script = fileURLToPath(new URL('spawn-worker.child.ts', import.meta.url));
const tsxCommand = createRequire(import.meta.url).resolve('tsx/cli');

test.each([
  ['node --import tsx', ['--import', 'tsx', script]],
  ['the command tsx', [tsxCommand, script]],
])('run from sources by %s, the heartbeat has its thread', async (_, args) => {
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toBe('exit 0\n');
});

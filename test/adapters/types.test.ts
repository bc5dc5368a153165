import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { compileExamples, listExamples, needsDatabaseClients } from '../docs/compile-examples.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

// `npm run check` leaves this folder out, because a fresh clone does not have its packages.
test('this folder has no type errors, and what the *.types.ts files expect', async () => {
  const tsc = fileURLToPath(new URL('../../node_modules/.bin/tsc', import.meta.url));
  const output = await promisify(execFile)(tsc, ['-p', 'test/adapters', '--noEmit'], { cwd: root }).then(
    () => '',
    (error: { stdout: string }) => error.stdout,
  );
  expect(output).toBe('');
}, 180_000);

test('examples of adapters compile as they stand', async () => {
  const examples = (await listExamples()).filter(needsDatabaseClients);
  expect(examples.length).toBeGreaterThan(3);
  const prisma = `const prisma: import('${root}/test/adapters/prisma7/generated/client.ts').PrismaClient;`;
  expect(await compileExamples(examples, 'test/adapters', prisma)).toBe('');
}, 180_000);

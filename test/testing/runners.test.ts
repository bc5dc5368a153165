import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { copyPackage } from '../../scripts/built-package.ts';
import { run } from '../package/packed-project.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The examples of docs/testing.md, run as they are with the built package. The jest example is not: jest has 270 packages. */
describe('the examples for test runners', () => {
  let database: TestDatabase;
  let project: string;

  beforeAll(async () => {
    database = await createTestDatabase({ migrate: false });
    // Outside of node_modules, where vitest looks for no tests.
    project = await mkdtemp(join(tmpdir(), 'postcommit-runners-'));
    await writeFile(join(project, 'package.json'), JSON.stringify({ name: 'shop', private: true, type: 'module' }));
    await mkdir(join(project, 'node_modules'));
    for (const name of ['croner', 'pg', 'vitest']) {
      await symlink(join(root, 'node_modules', name), join(project, 'node_modules', name), 'junction');
    }
    copyPackage(join(project, 'node_modules/postcommit'));
  });

  afterAll(async () => {
    await rm(project, { recursive: true, force: true });
    await database.close();
  });

  async function exampleOf(runner: string): Promise<string> {
    const page = await readFile(join(root, 'docs/testing.md'), 'utf8');
    const section = page.split(/^## /m).find((text) => text.startsWith(`${runner}\n`)) ?? '';
    return /```ts\n(.*?)```/s.exec(section)?.[1] ?? '';
  }

  const runNode = (...args: string[]) =>
    run(process.execPath, args, project, { DATABASE_URL: database.url, CI: '', NODE_OPTIONS: '', VITEST: '' });

  it('vitest', async () => {
    await writeFile(join(project, 'orders.test.ts'), await exampleOf('vitest'));
    const output = await runNode(join(root, 'node_modules/vitest/vitest.mjs'), 'run', '--root', project);
    expect(output).toMatch(/Tests {2}2 passed \(2\)/);
  });

  it('node:test', async () => {
    await writeFile(join(project, 'orders.node.ts'), await exampleOf('node:test'));
    const tsx = join(root, 'node_modules/tsx/dist/esm/index.mjs');
    const output = await runNode('--import', tsx, '--test-reporter=tap', '--test', 'orders.node.ts');
    expect(output).toMatch(/# pass 1\n# fail 0/);
  });

  it('leave no schema behind', async () => {
    expect(await database.query(`select from pg_namespace where nspname like 'postcommit%'`)).toEqual([]);
  });
});

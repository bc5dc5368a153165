import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Scene } from '../admin/scene.ts';
import { operatorOf } from './fake-terminal.ts';
import { jsonError, projectFolder } from './run-cli.ts';

let scene: Scene;
let id: string;
const { here, json } = operatorOf(() => scene.db.url);

beforeAll(async () => {
  scene = await Scene.create();
  id = await scene.emitOne({ payload: { does: 'reject' } });
  await scene.relay();
  await scene.untilStatus('FAILED', 1);
});
afterAll(() => scene.close());

it('a dead letter is edited and delivered, and the audit says who did it and why', async () => {
  const file = join(projectFolder({ 'fixed.json': '{"does":"ok"}' }), 'fixed.json');
  expect(await json('dead', 'edit', id, '--payload-file', file, '--operator', 'ann', '--why', 'typo')).toMatchObject({
    count: 1,
  });
  await scene.untilStatus('SENT', 1);
  expect((await json('audit')).operations).toMatchObject([
    { by: 'ann', databaseRole: 'postgres', reason: 'typo', action: 'editAndRetry', changed: 1, target: { ids: [id] } },
  ]);
  const { stdout } = await here('audit');
  expect(stdout).toMatch(/ann +postgres +editAndRetry +1 .* typo +done/);
});

it('an operation that was interrupted is not done: the audit says how it continues', async () => {
  const signal = AbortSignal.abort();
  const { next } = await scene.admin.replay({ type: 'order.created' }, { signal });
  await scene.admin.retry({ all: true }, { signal });
  expect((await json('audit', '--limit', '2')).operations).toMatchObject([
    { action: 'retry', changed: 0, interrupted: 'the same call continues it' },
    { action: 'replay', changed: 0, interrupted: `continue with --after ${next}` },
  ]);
  const { stdout } = await here('audit', '--limit', '2');
  expect(stdout).toContain(`interrupted, continue with --after ${next}`);
  expect(stdout).not.toContain('done');
});

it('an event that is no dead letter any more, and a file without JSON, are refused', async () => {
  const folder = projectFolder({ 'broken.json': '{"does":', 'fine.json': '{}' });
  const edit = (name: string) => here('dead', 'edit', id, '--payload-file', join(folder, name), '--json');
  const refused = await edit('broken.json');
  expect([refused.code, jsonError(refused).code]).toEqual([2, 'POSTCOMMIT_E_USAGE']);
  const late = await edit('fine.json');
  expect([late.code, jsonError(late).code]).toEqual([1, 'POSTCOMMIT_E_NOT_A_DEAD_LETTER']);
});

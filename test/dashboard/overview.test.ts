import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { OverviewReader } from '../../src/dashboard/overview.ts';
import { Scene } from '../admin/scene.ts';

let scene: Scene;

beforeAll(async () => {
  scene = await Scene.create();
});
afterAll(() => scene.close());

test('the log is searched for unqueued events once a minute, and the figure stays in between', async () => {
  await scene.emit([{}, {}]);
  await scene.db.query('delete from postcommit.outbox_queue');
  const clock = vi.spyOn(performance, 'now').mockReturnValue(1_000);
  const reader = new OverviewReader(scene.admin);
  const unqueued = async () => (await reader.read()).counts;
  expect(await unqueued()).toMatchObject({ unqueued: 2, delivered: 0, exact: { unqueued: true } });
  expect(await scene.admin.requeueUnqueued()).toMatchObject({ count: 2 });
  clock.mockReturnValue(60_000);
  expect(await unqueued()).toMatchObject({ unqueued: 2, pending: 2 });
  clock.mockReturnValue(61_000);
  expect(await unqueued()).toMatchObject({ unqueued: 0, pending: 2 });
  clock.mockRestore();
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { createDashboard, type Dashboard } from '../../src/dashboard/dashboard.ts';
import { PayloadLimiter } from '../../src/dashboard/payload-limiter.ts';
import { Slots } from '../../src/dashboard/slots.ts';
import { Scene } from '../admin/scene.ts';
import { until } from '../support/wait.ts';

let scene: Scene;
let dashboard: Dashboard;
let id: string;
let smallId: string;
/** Calls of `find` that have begun and may not end before `open`. */
const reading: (() => void)[] = [];
let found = 0;

beforeAll(async () => {
  scene = await Scene.create();
  id = await scene.emitOne({ payload: { text: 'x'.repeat(300_000), pair: '😀'.repeat(100_000) } as object });
  smallId = await scene.emitOne({ payload: { text: 'x' } as object });
  const held = Object.assign(Object.create(scene.admin), {
    find: async (reference: string) => {
      await new Promise<void>((resolve) => reading.push(resolve));
      found++;
      return scene.admin.find(reference);
    },
  });
  dashboard = createDashboard({ outboxes: { shop: held }, open: true });
});
afterAll(async () => {
  dashboard.close();
  await scene.close();
});

const getEvent = (id: string, path = '', init: RequestInit = {}) =>
  dashboard.fetch(new Request(`http://localhost/api/shop/events/${id}${path}`, init));
const get = (path: string, init: RequestInit = {}) => getEvent(id, path, init);

/** Lets reading requests go on until `done` is settled. */
async function letRead<T>(done: Promise<T>): Promise<T> {
  let isDone = false;
  const ended = done.finally(() => {
    isDone = true;
  });
  await until(
    () => {
      for (const go of reading.splice(0)) go();
      return isDone;
    },
    { what: 'the requests are answered' },
  );
  return ended;
}

test('of a hundred requests for an event two read its payload at once, fifty wait, and the others get 503', async () => {
  // A small one: none of the fifty may wait for five seconds on a busy machine.
  const requests = Array.from({ length: 100 }, () => getEvent(smallId));
  await until(() => reading.length === 2, { what: 'two are reading' });
  const refused = await Promise.race(requests);
  expect(refused.status).toBe(503);
  expect(refused.headers.get('retry-after')).toBe('2');
  expect(await refused.json()).toMatchObject({ error: { code: 'POSTCOMMIT_E_TOO_MANY_PAYLOADS' } });
  expect(reading).toHaveLength(2);
  const statuses = (await letRead(Promise.all(requests))).map(({ status }) => status);
  expect(statuses.filter((status) => status === 200)).toHaveLength(52);
  expect(statuses.filter((status) => status === 503)).toHaveLength(48);
  expect(found).toBe(52);
});

test('a download takes its place until it is read or given up, and is sent unchanged', async () => {
  const downloads = await letRead(Promise.all(Array.from({ length: 8 }, () => get('/payload'))));
  expect(downloads.map(({ status }) => status)).toEqual(Array(8).fill(200));
  expect((await get('/payload')).status).toBe(503);
  // A page needs no such place.
  expect((await letRead(get(''))).status).toBe(200);
  const [first, second] = downloads;
  expect(JSON.parse((await first?.text()) ?? '')).toEqual((await scene.admin.find(id))?.payload);
  await second?.body?.cancel();
  const [third, fourth] = await letRead(Promise.all([get('/payload'), get('/payload')]));
  expect([third?.status, fourth?.status]).toEqual([200, 200]);
  expect((await get('/payload')).status).toBe(503);
  await Promise.all([third, fourth].map((each) => each?.body?.cancel()));
  // A client that asks for the headers only never reads the body.
  const heads = await letRead(Promise.all(Array.from({ length: 2 }, () => get('/payload', { method: 'HEAD' }))));
  expect(heads.map(({ status }) => status)).toEqual([200, 200]);
  expect((await letRead(get('/payload', { method: 'HEAD' }))).status).toBe(200);
  await Promise.all(downloads.slice(2).map((each) => each.body?.cancel()));
});

test('a client that is gone does not wait, and a request that fails frees its place', async () => {
  const limiter = new PayloadLimiter();
  const gone = new AbortController();
  const never = new AbortController().signal;
  let end = () => {};
  const busy = [0, 1].map(() => limiter.read(never, () => new Promise<void>((resolve) => (end = chain(end, resolve)))));
  const waiting = limiter.read(gone.signal, async () => 'read');
  gone.abort();
  await expect(waiting).rejects.toMatchObject({ code: 'POSTCOMMIT_E_TOO_MANY_PAYLOADS' });
  end();
  await Promise.all(busy);
  for (let n = 0; n < 5; n++) {
    await expect(limiter.read(never, () => Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  }
  expect(await limiter.read(never, async () => 'read')).toBe('read');
});

const chain = (first: () => void, second: () => void) => () => {
  first();
  second();
};

test('slots are handed over in order, never more than there are', async () => {
  const slots = new Slots({ inUseMax: 1, waitingMax: 3, waitMs: 60_000 });
  const order: number[] = [];
  let inUse = 0;
  const use = async (n: number) => {
    const release = await slots.take();
    if (release === undefined) return false;
    expect(++inUse).toBe(1);
    order.push(n);
    await Promise.resolve();
    inUse--;
    release();
    release();
    return true;
  };
  expect(await Promise.all([1, 2, 3, 4, 5].map(use))).toEqual([true, true, true, true, false]);
  expect(order).toEqual([1, 2, 3, 4]);
  const quick = new Slots({ inUseMax: 1, waitingMax: 1, waitMs: 1 });
  await quick.take();
  expect(await quick.take()).toBeUndefined();
});

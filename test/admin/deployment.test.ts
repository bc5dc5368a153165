import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runHere } from '../cli/fake-terminal.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

/** What operators see of relays that differ. */
describe('relays of two versions', () => {
  let scene: Scene;
  const status = async () => (await runHere(['status'], { env: { DATABASE_URL: scene.db.url } })).stdout;
  const findings = async () =>
    (await scene.admin.doctor({ only: ['relays', 'destinations'] })).findings.filter(
      ({ severity }) => severity !== 'ok',
    );

  beforeEach(async () => {
    scene = await Scene.create();
  });
  afterEach(() => scene.close());

  test('are distinguished by version, targets and fingerprint', async () => {
    const mail = () => {};
    const handlers = { 'order.created': { mail } };
    const destinations = { kafka: new ScriptedPublisher(), hook: new ScriptedPublisher() };
    await scene.relay({ name: 'new', handlers, destinations });
    const same = await scene.relay({ name: 'same', handlers, destinations });
    expect(await findings()).toEqual([]);
    expect(await status()).not.toMatch(/does not have|different/);
    const [one, two] = await scene.admin.relays();
    expect(one).toMatchObject({
      version: expect.stringMatching(/^\d+\.\d+\.\d+/),
      targets: ['hook', 'kafka', 'order.created:mail'],
      fingerprint: expect.stringMatching(/^[0-9a-f]{16}$/),
    });
    expect(two?.fingerprint).toBe(one?.fingerprint);
    await same.stop();

    const old = await scene.relay({ name: 'old', handlers, destinations: { hook: new ScriptedPublisher() } });
    await scene.db.query(
      `update postcommit.outbox_relays set version = '0.0.9' where name = 'old' and ended_at is null`,
    );
    expect(await findings()).toMatchObject([
      { severity: 'warning', what: 'the relay old does not have kafka, but other live relays do' },
      { severity: 'note', what: expect.stringContaining('0.0.9 (old)') },
    ]);
    expect(await status()).toContain('relay old does not have kafka, but other live relays do\n');
    expect(await status()).toMatch(/\nold +alive +0\.0\.9 /);
    await old.stop();

    await scene.relay({ name: 'routed', handlers, destinations, route: () => ({ to: 'hook' }) });
    expect(await findings()).toMatchObject([{ what: expect.stringContaining('different route') }]);
  });

  test('a handler that no relay has any more is named, with the events that wait for it', async () => {
    const handlers = { 'order.created': { mail: () => {}, stock: () => Promise.reject(new Error('not yet')) } };
    const current = await scene.relay({ handlers, retry: { delaysMs: Array(100).fill(10) } });
    await scene.emit([{ aggregate: ['order', '1'] }, { aggregate: ['order', '2'] }]);
    await until(() => current.stats().failed >= 10, { what: 'both are in retry' });
    expect(await scene.admin.missingTargets()).toEqual([]);
    await current.stop();
    await scene.relay({ name: 'old', handlers: { 'order.created': { mail: () => {} } } });
    expect(await scene.admin.missingTargets()).toEqual([{ target: 'order.created:stock', events: 2 }]);
    expect(await findings()).toMatchObject([{ fix: 'npx postcommit forget order.created:stock' }]);
    expect(await status()).toContain(
      'no live relay has order.created:stock: 2 events waiting for it, and their aggregates',
    );
  });

  test('a type that the relay neither handles nor routes is named until it does, with the events that fail', async () => {
    const retry = { delaysMs: Array(100).fill(10) };
    const current = await scene.relay({ handlers: { 'example.created': { log: () => {} } }, retry });
    await scene.emit([{ aggregate: ['order', '1'] }, { aggregate: ['order', '2'] }]);
    await until(() => current.stats().failed >= 4, { what: 'both are in retry' });
    expect(await scene.admin.unhandledTypes()).toEqual([{ type: 'order.created', events: 2 }]);
    expect(await findings()).toMatchObject([
      {
        severity: 'warning',
        what: 'order.created: 2 events in the queue failed because the relay has no handler and no route for this type',
        fix: expect.stringContaining('add a handler or a route for order.created'),
      },
    ]);
    expect(await status()).toContain(
      'order.created: 2 events failed, the relay has no handler and no route for this type',
    );
    await current.stop();
    expect(await scene.admin.unhandledTypes()).toHaveLength(1);
    await scene.db.query(`update postcommit.outbox_queue set available_at = now() + interval '1 hour'`);
    await scene.relay({ name: 'deployed', retry });
    expect(await scene.admin.unhandledTypes()).toEqual([]);
    expect(await status()).not.toContain('no handler');
  });

  test('a shelf that no relay looks after is named', async () => {
    const ids = await scene.emit([{ aggregate: ['order', '1'] }, { aggregate: ['order', '2'] }]);
    await scene.shelve(ids, ['kafka']);
    expect(await findings()).toMatchObject([{ what: expect.stringContaining('no relay is alive') }]);
    await scene.relay();
    expect(await findings()).toMatchObject([
      {
        severity: 'warning',
        what: 'no live relay has the destination kafka, and 2 events wait for it',
        fix: 'npx postcommit forget kafka',
      },
    ]);
    expect(await status()).toMatch(/\nkafka +up +0 +2 /);
  });
});

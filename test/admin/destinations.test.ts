import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { doorbellChannel } from '../../src/database/identifier.ts';
import { createOutbox, fromPg, type PauseOptions } from '../../src/index.ts';
import { openCircuit } from '../../src/outbox/delivering/open-circuit.ts';
import { registerDestinations } from '../../src/outbox/delivering/register-destinations.ts';
import { takeCircuitProbe } from '../../src/outbox/delivering/take-circuit-probe.ts';
import { unshelve } from '../../src/outbox/delivering/unshelve.ts';
import { listenInProcess } from '../../src/outbox/emitting/notify.ts';
import { within } from '../support/wait.ts';
import { Scene } from './scene.ts';

let scene: Scene;

beforeEach(async () => {
  scene = await Scene.create();
});

afterEach(() => scene.close());

const know = (...names: string[]) => registerDestinations(scene.db.pool, 'postcommit', names);
const breakDown = (destination: string, error: string) =>
  openCircuit(
    scene.db.pool,
    'postcommit',
    { destination, error, retryAfterMs: 0 },
    { probeDelayMs: 60_000, probeDelayMsMax: 60_000 },
  );
const stateOf = async (name: string) => (await scene.admin.destinations()).find((each) => each.name === name);

describe('admin.destinations', () => {
  test('are none before a relay has entered any', async () => {
    expect(await scene.admin.destinations()).toEqual([]);
  });

  test('tells which are up, down and paused, why, and what waits for each', async () => {
    await know('webhooks', 'kafka', 'nats', 'both');
    const ids = await scene.emit(Array.from({ length: 5 }, (_, i) => ({ aggregate: ['order', String(i)] as const })));
    await scene.shelve(ids.slice(0, 3), ['kafka'], ['nats']);
    await scene.shelve(ids.slice(3), ['webhooks', 'kafka']);
    await breakDown('kafka', 'connect ECONNREFUSED 10.0.0.7:9092');
    await scene.admin.pauseDestination('webhooks', { reason: 'the partner migrates' });
    await breakDown('both', 'gone');
    await scene.admin.pauseDestination('both');
    const [first] = await scene.db.query('select created_at from postcommit.outbox_events order by seq limit 1');

    expect(await scene.admin.destinations()).toEqual([
      {
        name: 'both',
        state: 'paused',
        waiting: 0,
        relays: 0,
        downSince: expect.any(Date),
        error: 'gone',
        probeAt: expect.any(Date),
        pausedAt: expect.any(Date),
      },
      {
        name: 'kafka',
        state: 'down',
        waiting: 5,
        relays: 0,
        oldestWaitingAt: first.created_at,
        downSince: expect.any(Date),
        error: 'connect ECONNREFUSED 10.0.0.7:9092',
        probeAt: expect.any(Date),
      },
      { name: 'nats', state: 'up', waiting: 0, relays: 0 },
      {
        name: 'webhooks',
        state: 'paused',
        waiting: 2,
        relays: 0,
        oldestWaitingAt: expect.any(Date),
        pausedAt: expect.any(Date),
        reason: 'the partner migrates',
      },
    ]);
  });
});

describe('admin.pauseDestination and admin.resumeDestination', () => {
  test('keep the events of a paused destination on the shelf, and let them go in order', async () => {
    const ids = await scene.emit([{}, {}, {}]);
    await scene.shelve(ids, ['kafka']);
    await scene.admin.pauseDestination('kafka');
    const request = { destination: 'kafka', rateMax: 1_000, countMax: 10 };
    expect(await unshelve(scene.db.pool, 'postcommit', request)).toBe(0);
    expect(await scene.admin.counts()).toMatchObject({ pending: 3, shelved: 3 });

    await scene.admin.resumeDestination('kafka');
    expect(await stateOf('kafka')).toMatchObject({ state: 'up', waiting: 3 });
    await scene.db.query(`update postcommit.outbox_destinations set unshelved_at = now() - interval '1 second'`);
    expect(await unshelve(scene.db.pool, 'postcommit', request)).toBe(3);
    expect(await scene.admin.counts()).toMatchObject({ pending: 3, shelved: 0 });
  });

  test('again: the time stays, a new reason replaces the old one, none leaves it', async () => {
    await know('kafka');
    await scene.admin.pauseDestination('kafka', { reason: 'upgrade' });
    const first = await stateOf('kafka');
    await scene.admin.pauseDestination('kafka');
    expect(await stateOf('kafka')).toEqual(first);
    await scene.admin.pauseDestination('kafka', { reason: ' still upgrading ' });
    expect(await stateOf('kafka')).toEqual({ ...first, reason: 'still upgrading' });
    await scene.admin.resumeDestination('kafka');
    await scene.admin.resumeDestination('kafka');
    expect(await stateOf('kafka')).toEqual({ name: 'kafka', state: 'up', waiting: 0, relays: 0 });
    await scene.admin.pauseDestination('kafka');
    expect(await stateOf('kafka')).not.toHaveProperty('reason');
  });

  test('resume makes the next probe of an outage due, and leaves it to the probe whether it is over', async () => {
    await know('kafka');
    await breakDown('kafka', 'away');
    await scene.admin.resumeDestination('kafka');
    expect(await stateOf('kafka')).toMatchObject({ state: 'down', error: 'away' });
    expect(await takeCircuitProbe(scene.db.pool, 'postcommit', 'kafka', 1_000)).toBe(true);
    expect(await takeCircuitProbe(scene.db.pool, 'postcommit', 'kafka', 1_000)).toBe(false);
  });

  test('wake the relays of this process and of others', async () => {
    await know('kafka');
    const listener = new pg.Client({ connectionString: scene.db.url });
    await listener.connect();
    await listener.query(`listen ${doorbellChannel('postcommit')}`);
    let notifiedHere = 0;
    const stopListening = listenInProcess('postcommit', () => notifiedHere++);
    try {
      for (const [i, change] of [
        () => scene.admin.pauseDestination('kafka'),
        () => scene.admin.resumeDestination('kafka'),
      ].entries()) {
        const notified = new Promise((resolve) => listener.once('notification', resolve));
        await change();
        await within(notified, { timeoutMs: 10_000, what: 'a notification' });
        expect(notifiedHere).toBe(i + 1);
      }
    } finally {
      stopListening();
      await listener.end();
    }
  });

  test('refuse a destination that no relay has, and tell which is meant', async () => {
    const none = scene.admin.pauseDestination('kafka');
    await expect(none).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
    await expect(none).rejects.toThrow('No relay has registered a destination yet');
    await know('kafka', 'webhooks');
    for (const change of [scene.admin.pauseDestination, scene.admin.resumeDestination].map((method) =>
      method.bind(scene.admin),
    )) {
      const refused = change('kafak');
      await expect(refused).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
      await expect(refused).rejects.toThrow('Got "kafak". Known destinations: kafka, webhooks. Did you mean kafka?');
      for (const name of ['', 'a\0b', '\ud800', 'x'.repeat(10_000), 7, null, undefined, ['kafka']]) {
        const odd = change(name as string);
        await expect(odd, JSON.stringify(name)).rejects.toMatchObject({ code: 'POSTCOMMIT_E_NO_SUCH_DESTINATION' });
        await odd.catch((error: Error) => expect(error.message.length).toBeLessThan(400));
      }
    }
    await know(...Array.from({ length: 30 }, (_, i) => `queue-${i}`));
    await expect(scene.admin.pauseDestination('elsewhere')).rejects.toThrow('and 12 more.');
    expect((await scene.admin.destinations()).every(({ state }) => state === 'up')).toBe(true);
  });

  test('refuse a reason that cannot be kept', async () => {
    await know('kafka');
    const refused: [unknown, string?][] = [
      [{ reason: 7 }],
      [{ reason: 'x'.repeat(501) }],
      [{ reson: 'typo' }],
      ['why'],
      [null],
      [[]],
      [{ reason: 'a\0b' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
      [{ reason: '\udc00' }, 'POSTCOMMIT_E_TEXT_NOT_STORABLE'],
    ];
    for (const [options, code = 'POSTCOMMIT_E_BAD_OPTION'] of refused) {
      await expect(
        scene.admin.pauseDestination('kafka', options as PauseOptions),
        JSON.stringify(options),
      ).rejects.toMatchObject({
        code,
      });
    }
    const flag = { why: 'cluster upgrade' };
    await expect(scene.admin.pauseDestination('kafka', flag as PauseOptions)).rejects.toThrow('is the option reason');
    expect(() => scene.admin.as({ by: 'ann', ...flag })).toThrow('is the option reason');
    expect(await stateOf('kafka')).toMatchObject({ state: 'up' });
    await scene.admin.pauseDestination('kafka', { reason: 'x'.repeat(500) });
    expect((await stateOf('kafka'))?.reason).toHaveLength(500);
  });

  test('work without NOTIFY, and in their own schema only', async () => {
    await know('kafka');
    const { admin } = createOutbox({ db: fromPg(scene.db.pool), notify: false });
    await admin.pauseDestination('kafka');
    expect(await stateOf('kafka')).toMatchObject({ state: 'paused' });
    const elsewhere = createOutbox({ db: fromPg(scene.db.pool), schema: 'elsewhere' }).admin;
    await expect(elsewhere.resumeDestination('kafka')).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_MIGRATION_MISSING',
    });
  });
});

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openCircuit } from '../../src/outbox/delivering/open-circuit.ts';
import { registerDestinations } from '../../src/outbox/delivering/register-destinations.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';
import { Scene } from './scene.ts';

describe('a destination that an operator pauses', () => {
  let scene: Scene;
  const [kafka, nats] = [new ScriptedPublisher(), new ScriptedPublisher()];

  beforeEach(async () => {
    scene = await Scene.create();
    for (const publisher of [kafka, nats]) {
      publisher.received.length = 0;
      publisher.mood = 'up';
    }
  });

  afterEach(() => scene.close());

  const startRelay = (name: string) =>
    scene.relay({ name, handlers: {}, destinations: { kafka, nats }, pollIntervalMs: 100 });
  const ofAggregate = (publisher: ScriptedPublisher, key: string) =>
    publisher.received.filter((message) => message.key === key).map(({ eventId }) => eventId);
  const emitLine = (key: string, count: number) =>
    scene.emit(Array.from({ length: count }, () => ({ aggregate: ['order', key] as const })));

  test('gets nothing while others go on, and then everything in order, without a lost attempt', {
    timeout: 120_000,
  }, async () => {
    await registerDestinations(scene.db.pool, 'postcommit', ['kafka']);
    await scene.admin.pauseDestination('kafka', { reason: 'upgrade' });
    await startRelay('one');
    await startRelay('two');
    const lines = [await emitLine('a', 20), await emitLine('b', 20)] as const;
    await until(() => nats.received.length === 40, { timeoutMs: 20_000, what: 'the other destination has all' });
    await until(async () => (await scene.admin.counts()).shelved === 40, { what: 'all wait' });
    expect(kafka.received).toEqual([]);
    expect(await scene.admin.find(lines[0][0] as string)).toMatchObject({
      status: 'PENDING',
      waitingFor: ['kafka'],
      done: ['nats'],
      attempts: 0,
    });
    expect(await scene.admin.destinations()).toMatchObject([
      { name: 'kafka', state: 'paused', reason: 'upgrade', waiting: 40 },
      { name: 'nats', state: 'up', waiting: 0 },
    ]);

    await scene.admin.resumeDestination('kafka');
    await scene.untilStatus('SENT', 40);
    for (const [i, key] of ['a', 'b'].entries()) {
      expect(ofAggregate(kafka, key)).toEqual(lines[i]);
      expect(ofAggregate(nats, key)).toEqual(lines[i]);
    }
    expect(await scene.admin.counts()).toMatchObject({ pending: 0, shelved: 0, delivered: 40, oldestPendingMs: null });
    const story = await scene.admin.find(lines[1][19] as string);
    expect(story).toMatchObject({ attempts: 1, failures: [], waitingFor: [] });
    expect(await scene.db.query('select from postcommit.outbox_failures')).toEqual([]);
  });

  test('is noticed by relays that run', { timeout: 120_000 }, async () => {
    await startRelay('one');
    const ids = await emitLine('a', 3);
    await scene.untilStatus('SENT', 3);
    await scene.admin.pauseDestination('kafka');
    // What is emitted before a relay has noticed still arrives.
    await until(
      async () => {
        ids.push(...(await emitLine('a', 1)));
        return (await scene.admin.counts()).shelved > 0;
      },
      { timeoutMs: 20_000, what: 'an event waits' },
    );
    const before = kafka.received.length;
    ids.push(...(await emitLine('a', 5)));
    await until(() => nats.received.length === ids.length, { what: 'the other destination has all' });
    expect(kafka.received).toHaveLength(before);
    await scene.admin.resumeDestination('kafka');
    await scene.untilStatus('SENT', ids.length);
    expect(ofAggregate(kafka, 'a')).toEqual(ids);
  });

  test('resume() of a destination that is down has it probed at once, and does not hide the outage', async () => {
    kafka.mood = 'away';
    const unhurried = { publisher: kafka, probeDelayMs: 3_600_000, probeDelayMsMax: 3_600_000 };
    await scene.relay({ handlers: {}, destinations: { kafka: unhurried, nats }, pollIntervalMs: 100 });
    const ids = await emitLine('a', 3);
    const isDown = async () => (await scene.admin.destinations())[0]?.state === 'down';
    await until(isDown, { what: 'the relay has found the outage' });
    const { probes } = kafka;
    await scene.admin.resumeDestination('kafka');
    await until(() => kafka.probes > probes, { what: 'a probe' });
    expect(await isDown()).toBe(true);
    kafka.mood = 'up';
    // The next probe by itself would be in an hour.
    await until(
      async () => {
        await scene.admin.resumeDestination('kafka');
        return kafka.received.length === 3;
      },
      { what: 'the events that waited' },
    );
    await scene.untilStatus('SENT', 3);
    expect(ofAggregate(kafka, 'a')).toEqual(ids);
    expect(await scene.admin.destinations()).toMatchObject([{ name: 'kafka', state: 'up' }, { name: 'nats' }]);
  });

  test('by resume() an outage ends long before its next probe', async () => {
    await registerDestinations(scene.db.pool, 'postcommit', ['kafka']);
    await openCircuit(
      scene.db.pool,
      'postcommit',
      { destination: 'kafka', error: 'away', retryAfterMs: 0 },
      { probeDelayMs: 3_600_000, probeDelayMsMax: 3_600_000 },
    );
    await startRelay('one');
    const ids = await emitLine('a', 3);
    await until(async () => (await scene.admin.counts()).shelved === 3, { timeoutMs: 20_000, what: 'all wait' });
    await scene.admin.resumeDestination('kafka');
    await scene.untilStatus('SENT', 3);
    expect(ofAggregate(kafka, 'a')).toEqual(ids);
  });
});

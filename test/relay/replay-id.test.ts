import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type OutboxAdmin } from '../../src/index.ts';
import type { Message } from '../../src/publishers/publisher.ts';
import { type RelayScenario, type ScenarioRelayOptions, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

/** A relay that has delivered some events once, and what the broker is asked to take from then on. */
class Scene {
  readonly publisher = new ScriptedPublisher();
  readonly asked: Message[] = [];
  ids: string[] = [];
  readonly admin: OutboxAdmin;
  readonly scenario: RelayScenario;
  /** The deduplication ids of the first deliveries. */
  readonly firstIds = new Set<string>();
  /** The seqs of the first deliveries, by event. */
  readonly firstSeqs = new Map<string, string | undefined>();
  /** So many attempts of each event fail. */
  failures = 0;

  constructor(scenario: RelayScenario) {
    this.scenario = scenario;
    this.admin = createOutbox({ db: fromPg(scenario.db.pool) }).admin;
  }

  async deliver(count: number, options: ScenarioRelayOptions = {}) {
    const { scenario, publisher } = this;
    const destinations = { events: { publisher, probeDelayMs: 20 } };
    this.ids = await scenario.emit(Array.from({ length: count }, (_, n) => ({ aggregateId: String(n) })));
    const relay = await scenario.relay('r', { handlers: {}, pollIntervalMs: 50, destinations, ...options });
    await this.untilAll('SENT', count);
    for (const { deduplicationId, eventId, headers } of publisher.received) {
      this.firstIds.add(deduplicationId);
      this.firstSeqs.set(eventId, headers['event-seq']);
    }
    publisher.outcomeOf = (message) => {
      this.asked.push(message);
      const tried = this.asked.filter(({ eventId }) => eventId === message.eventId).length;
      return tried > this.failures ? { kind: 'delivered' } : { kind: 'failed', reason: 'as scripted' };
    };
    return relay;
  }

  async untilAll(status: string, count: number): Promise<void> {
    await this.untilCount(`outbox_status where status = '${status}'`, count);
  }

  async untilCount(from: string, count: number): Promise<void> {
    const sql = `select count(*)::integer as n from postcommit.${from}`;
    await until(async () => (await this.scenario.db.query(sql))[0]?.n === count, {
      what: `${count} in ${from}`,
      timeoutMs: 20_000,
    });
  }

  /**
   * Every attempt of the replay had one id for each event, and it is the id of the first delivery and a number. Its seq is that of
   * the first delivery.
   */
  expectOneIdForEach(count: number): void {
    const ids = [...new Set(this.asked.map(({ deduplicationId }) => deduplicationId))];
    expect(ids).toHaveLength(count);
    expect(new Set(ids.map((id) => id.replace(/\.\d{16}$/, '')))).toEqual(this.firstIds);
    for (const id of ids) expect(this.firstIds).not.toContain(id);
    expect(new Set(this.firstSeqs.values()).size).toBe(count);
    for (const { eventId, headers } of this.asked) expect(headers['event-seq']).toBe(this.firstSeqs.get(eventId));
  }
}

// One event is claimed by another statement than several.
describe.each([1, 3])('a replay of %i keeps its deduplication ids and seqs', (count) => {
  const withScene = (work: (scene: Scene) => Promise<void>) => withScenario((scenario) => work(new Scene(scenario)));

  test(
    'over failed attempts',
    withScene(async (scene) => {
      await scene.deliver(count, { retry: { delaysMs: [20, 20] } });
      scene.failures = 2;
      expect(await scene.admin.replay({ all: true })).toEqual({ count });
      await until(() => scene.asked.length === 3 * count, { what: 'three attempts of each' });
      await scene.untilAll('SENT', count);
      scene.expectOneIdForEach(count);
    }),
  );

  test(
    'over an outage',
    withScene(async (scene) => {
      await scene.deliver(count);
      scene.publisher.mood = 'away';
      await scene.admin.replay({ all: true });
      await scene.untilCount('outbox_shelf', count);
      scene.publisher.mood = 'up';
      await scene.untilAll('SENT', count);
      scene.expectOneIdForEach(count);
    }),
  );

  for (const poison of ['skip', 'block'] as const) {
    test(
      `as dead letters that are retried, poison: ${poison}`,
      withScene(async (scene) => {
        await scene.deliver(count, { retry: { delaysMs: [] }, poison });
        scene.failures = 1;
        await scene.admin.replay({ all: true });
        await scene.untilAll('FAILED', count);
        expect(await scene.admin.retry({ all: true })).toEqual({ count });
        await scene.untilAll('SENT', count);
        expect(scene.asked).toHaveLength(2 * count);
        scene.expectOneIdForEach(count);
      }),
    );
  }

  for (const place of ['outbox_shelf', 'outbox_queue'] as const) {
    test(
      `when their only destination is forgotten while they are in ${place}, and they are retried elsewhere`,
      withScene(async (scene) => {
        const route = () => ({ to: 'gone' });
        const gone = new ScriptedPublisher();
        const { scenario } = scene;
        const first = await scene.deliver(count);
        await first.stop();
        gone.outcomeOf = () => ({ kind: 'failed', reason: 'as scripted' });
        if (place === 'outbox_shelf') gone.mood = 'away';
        const destinations = { gone };
        const retry = { delaysMs: [3_600_000] };
        const second = await scenario.relay('s', { handlers: {}, pollIntervalMs: 50, destinations, route, retry });
        await scene.admin.replay({ all: true });
        await scene.untilCount(place === 'outbox_shelf' ? place : `${place} where owed = '{gone}'`, count);
        await second.stop();
        expect(await scene.admin.forget('gone')).toMatchObject({ discarded: count });
        const { publisher: events } = scene;
        await scenario.relay('t', { handlers: {}, pollIntervalMs: 50, destinations: { events } });
        expect(await scene.admin.retry({ ids: scene.ids })).toEqual({ count });
        await scene.untilAll('SENT', count);
        scene.expectOneIdForEach(count);
      }),
    );
  }
});

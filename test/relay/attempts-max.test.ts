import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

const broken = () => {
  throw new Error('not today');
};
const handlers = {
  usual: { call: broken },
  strict: { call: { handle: broken, retry: { delaysMs: [] } } },
};

describe.each(postgresVersions)('attemptsMax of an event, on PostgreSQL %i', (version) => {
  const letters = (scenario: RelayScenario): Promise<{ id: string; attempts: number }[]> =>
    scenario.db.query(
      `select l.aggregate_id as id, d.attempts from postcommit.outbox_dead_letters d
         join postcommit.outbox_events l using (seq) order by 1`,
    );

  test('counts instead of the policies of the handler and the relay, however the event was emitted', async () => {
    const scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
    try {
      const outbox = createOutbox({ db: fromPg(scenario.db.pool) });
      await scenario.emit([{ aggregateId: 'a: alone', type: 'strict', attemptsMax: 3 }]);
      await scenario.emit([
        { aggregateId: 'b: first of several', type: 'usual', attemptsMax: 2 },
        { aggregateId: 'c: without', type: 'usual' },
      ]);
      await outbox.transaction(async (tx) => {
        const id = '0192f0c1-8f57-7000-8000-0000000000ff';
        const aggregate = ['thing', 'd: once'] as const;
        await outbox.emitOnce(tx, { id, type: 'usual', aggregate, payload: null, attemptsMax: 1 });
        await outbox.emit(tx, {
          type: 'usual',
          aggregate: ['thing', 'e: in a transaction'],
          payload: null,
          attemptsMax: 1,
        });
      });
      await scenario.db.query(
        `select postcommit.emit('usual', 'thing', 'f: in SQL', '{}', attempts_max => 2),
                postcommit.emit_once(gen_random_uuid(), 'usual', 'thing', 'g: once in SQL', '{}', attempts_max => 2)`,
      );
      await scenario.db.query(
        `insert into postcommit.outbox_events (event_type, aggregate_type, aggregate_id, payload, attempts_max)
         values ('usual', 'thing', 'h: inserted', '{}', 1)`,
      );
      const relay = await scenario.relay('one', { retry: { delaysMs: [0, 0, 0] }, handlers });
      await until(() => relay.stats().deadLettered === 8, { what: 'all are dead letters' });
      // Alone in the queue, it is claimed in another way.
      await scenario.emit([{ aggregateId: 'i: claimed alone', type: 'usual', attemptsMax: 1 }]);
      await until(() => relay.stats().deadLettered === 9, { what: 'the last one is a dead letter' });
      expect(await letters(scenario)).toEqual([
        { id: 'a: alone', attempts: 3 },
        { id: 'b: first of several', attempts: 2 },
        { id: 'c: without', attempts: 4 },
        { id: 'd: once', attempts: 1 },
        { id: 'e: in a transaction', attempts: 1 },
        { id: 'f: in SQL', attempts: 2 },
        { id: 'g: once in SQL', attempts: 2 },
        { id: 'h: inserted', attempts: 1 },
        { id: 'i: claimed alone', attempts: 1 },
      ]);
    } finally {
      await scenario.close();
    }
  });

  test('is refused unless it is a whole number from 1 to 1,000', async () => {
    const scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
    try {
      for (const attemptsMax of [0, -1, 1_001, 1.5, Number.NaN, '3', null] as number[]) {
        await expect(scenario.emit([{ aggregateId: 'a', attemptsMax }])).rejects.toMatchObject({
          code: 'POSTCOMMIT_E_BAD_EVENT',
          message: expect.stringContaining('attemptsMax'),
        });
      }
      for (const attemptsMax of [0, 1_001]) {
        await expect(
          scenario.db.query(`select postcommit.emit('usual', 'thing', 'a', '{}', attempts_max => ${attemptsMax})`),
        ).rejects.toMatchObject({ code: '23514' });
      }
      expect(await scenario.expected()).toEqual([]);
    } finally {
      await scenario.close();
    }
  });
});

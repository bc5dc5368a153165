import { describe, expect, test } from 'vitest';
import { NoAnswerError } from '../../src/database/reconnecting-client.ts';
import { ClaimHistory } from '../../src/relay/lane/claim-history.ts';
import { ClaimTurn } from '../../src/relay/lane/claim-turn.ts';
import { EventBuffer } from '../../src/relay/lane/event-buffer.ts';
import { PollingLane, type PollingLaneOptions } from '../../src/relay/lane/polling-lane.ts';
import { silentLogger } from '../../src/telemetry/logging.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

/** Inserts so many events whose payload is an array of this SQL value, so many times. */
async function insertNumbers(scenario: RelayScenario, number: string, perPayload: number, events: number) {
  await scenario.db.query(
    `with one as materialized (select to_jsonb(${number}) as value), numbers as materialized (
       select jsonb_agg(value) as payload from one, generate_series(1, $1::integer))
     insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
     select 'digits', n::text, 'scripted', payload from numbers, generate_series(1, $2::integer) n`,
    [perPayload, events],
  );
}

describe.each(postgresVersions)('payloads of many digits, on PostgreSQL %i', (version) => {
  test('become dead letters, and all other events are delivered', { timeout: 180_000 }, async () => {
    const scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
    try {
      await insertNumbers(scenario, `'1e131071'::numeric`, 7_900, 4); // 2 KB stored, 1 GB of text
      await insertNumbers(scenario, `'-1e131071'::numeric`, 1_000, 60); // 308 bytes stored, 131 MB of text
      await insertNumbers(scenario, 'round(1::numeric, 16383)', 40_000, 2); // 11 KB stored, 650 MB of text
      await insertNumbers(scenario, `'1e400'::numeric`, 3, 1); // Rare, but harmless.
      await insertNumbers(scenario, '12.50', 100_000, 1); // Ordinary prices that compress well.
      await scenario.emit(Array.from({ length: 50 }, (_, n) => ({ aggregateId: `good${n}` })));
      const delivered: string[] = [];
      await scenario.relay('one', {
        handlers: { scripted: { note: async (event) => void delivered.push(event.aggregate.id) } },
      });
      await until(() => delivered.length === 52, { timeoutMs: 60_000, what: 'all readable events are delivered' });
      await scenario.drained(60_000);
      const letters = await scenario.db.query(
        `select d.reason, f.code, count(*)::integer as events from postcommit.outbox_dead_letters d
           join postcommit.outbox_failures f using (seq) group by d.reason, f.code`,
      );
      expect(letters).toEqual([{ reason: 'rejected', code: 'POSTCOMMIT_E_PAYLOAD_UNREADABLE', events: 66 }]);
    } finally {
      await scenario.close();
    }
  });
});

describe('after a claim that the database did not answer in time', () => {
  test('the next claim reads no payload', async () => {
    const inlineLimits: unknown[] = [];
    const queryArrays = async (_text: string, values?: unknown[]) => {
      inlineLimits.push(values?.[2]);
      if (inlineLimits.length === 1) throw new NoAnswerError(15_000);
      return { rows: [['0', false, null, null, null, null, null, null, null, null]] };
    };
    const none = () => 0;
    const lane = new PollingLane({
      schema: 'postcommit',
      logger: silentLogger,
      db: { connections: 1, queryArrays, query: async () => ({ rows: [] }) },
      batchSizeMax: 10,
      buffer: new EventBuffer({ eventsMin: 10, eventsMax: 10, bytesMax: 1e9, stuck: none, abandoned: none }),
      history: new ClaimHistory(),
      slowKeys: { excludedKeys: () => [] },
      token: () => '1',
      isCurrent: () => true,
      targets: () => [],
      queue: 'default',
      turn: new ClaimTurn(),
      knownSeqs: () => [],
    } as unknown as PollingLaneOptions);
    await expect(lane.claimOnce()).rejects.toThrow(NoAnswerError);
    await lane.claimOnce();
    expect(inlineLimits).toEqual([16_384, -1]);
  });
});

import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Logger } from '../../src/index.ts';
import { quietPool } from '../support/quiet-pool.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { startTransactionPooler, type TransactionPooler } from '../support/transaction-pooler.ts';

const retry = { delaysMs: [10, 10] };

/** Keeps what the relay logs, except failures that the handlers were scripted to have. */
function complaints(): { logger: Logger; lines: string[] } {
  const lines: string[] = [];
  const keep = (_fields: object, message: string) => void (/will retry/.test(message) || lines.push(message));
  return { logger: { debug: () => {}, info: () => {}, warn: keep, error: keep }, lines };
}

/** Two server connections for the relay's three and the emitters' six. */
function behindPooler(
  test: (scenario: RelayScenario, pooler: TransactionPooler) => Promise<void>,
): () => Promise<void> {
  return withScenario(async (scenario) => {
    const pooler = await startTransactionPooler(scenario.db.url, 2);
    try {
      await test(scenario, pooler);
    } finally {
      await pooler.close();
    }
  });
}

/** Six writers, some through outbox.transaction() and some through emit(), all of three aggregates. */
async function emitThrough(pooler: TransactionPooler, connectionString: string): Promise<void> {
  const pool = quietPool(pooler.url(connectionString), { max: 6 });
  const outbox = createOutbox({ db: fromPg(pool) });
  const event = (n: number) => ({
    type: 'scripted',
    aggregate: ['thing', `a${n % 3}`] as const,
    payload: { failTimes: n % 10 === 3 ? 1 : 0 },
  });
  const write = async (writer: number) => {
    for (let n = writer; n < 120; n += 6) {
      if (writer % 2 === 0) {
        await outbox.transaction(async (tx, emit) => {
          await tx.query('select 1');
          await emit(event(n));
        });
        continue;
      }
      const client = await pool.connect();
      await client.query('begin');
      await outbox.emit(client, event(n));
      await client.query(n % 4 === 3 ? 'rollback' : 'commit');
      client.release();
    }
  };
  await Promise.all([0, 1, 2, 3, 4, 5].map(write));
  await pool.end();
}

async function expectAllDelivered(scenario: RelayScenario): Promise<void> {
  await scenario.drained();
  expect(await scenario.expected()).toHaveLength(90);
  const findings = await scenario.findings();
  expect(findings).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
}

describe('behind a transaction pooler', () => {
  test(
    'writers and a relay that does not listen work as ever, whichever session they meet',
    behindPooler(async (scenario, pooler) => {
      const connectionString = pooler.url(scenario.db.url);
      const { logger, lines } = complaints();
      const relay = await scenario.relay('one', { connectionString, listen: false, leaseMs: 2_000, retry, logger });
      await emitThrough(pooler, scenario.db.url);
      await expectAllDelivered(scenario);
      await relay.stop();
      expect(lines).toEqual([]);
      expect(relay.stats()).toMatchObject({ state: 'idle', delivered: 90, deadLettered: 0, fenced: 0 });
      expect(await scenario.db.query('select ended_as from postcommit.outbox_relays')).toEqual([
        { ended_as: 'stopped' },
      ]);
      expect(Math.min(...pooler.carried)).toBeGreaterThan(50);
    }),
  );

  test(
    'a relay that is not configured for it, and receives no notification, delivers all the same',
    behindPooler(async (scenario, pooler) => {
      const connectionString = pooler.url(scenario.db.url);
      const { logger, lines } = complaints();
      const relay = await scenario.relay('one', {
        connectionString,
        leaseMs: 2_000,
        retry,
        logger,
        pollIntervalMs: 500,
      });
      await emitThrough(pooler, scenario.db.url);
      await expectAllDelivered(scenario);
      expect(relay.stats()).toMatchObject({ state: 'running', delivered: 90, deadLettered: 0 });
      expect(lines.filter((line) => !/LISTEN receives no/.test(line))).toEqual([]);
    }),
  );
});

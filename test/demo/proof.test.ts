import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OrderService } from '../../src/demo/order-service.ts';
import type { Evidence } from '../../src/demo/order-service-evidence.ts';
import { countBacklog, gatherEvidence } from '../../src/demo/order-service-evidence.ts';
import { orderHandlers } from '../../src/demo/order-service-handlers.ts';
import { createSchema, createTables } from '../../src/demo/order-service-tables.ts';
import type { Crash } from '../../src/demo/proof.ts';
import { checkEvidence } from '../../src/demo/proof.ts';
import { createRelay } from '../../src/relay/relay.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

const schemas = { shop: 'shop', outbox: 'postcommit' };
const crash: Crash = {
  relay: 'relay B',
  pid: 1,
  held: 3,
  takenOver: 3,
  takeoverMs: 1_200,
  outage: { from: 'infinity', to: '-infinity' },
};

let db: TestDatabase;
let service: OrderService;

/** An honest history: two orders with three events each, a poisoned one, three events rolled back, all delivered. */
beforeAll(async () => {
  db = await createTestDatabase();
  await createSchema({ connectionString: db.url }, schemas.shop);
  await createTables({ connectionString: db.url }, schemas);
  service = new OrderService(db.pool, schemas);
  for (let n = 0; n < 2; n++) {
    const id = (await service.placeOrder(false)) ?? '';
    await service.advanceOrder(id, { changesMind: true });
    await service.advanceOrder(id, { changesMind: false });
    await service.advanceOrder(id, { changesMind: false });
  }
  await service.placeOrder(true);
  await service.placePoisonOrder();
  await createRelay({
    connectionString: db.url,
    schema: schemas.outbox,
    handlers: orderHandlers(db.pool, schemas, 'relay A', () => {}),
    retry: { delaysMs: [0, 0, 0, 0] },
  }).runOnce();
  expect(await countBacklog(db.pool, schemas)).toBe(0);
});

afterAll(() => db.close());

/** Looks at the database after `statement` has changed it, and takes the change back. */
async function evidenceAfter(statement: string, values: unknown[] = []): Promise<Evidence> {
  const client: pg.PoolClient = await db.pool.connect();
  try {
    await client.query('begin');
    const { rowCount } = await client.query(statement, values);
    expect(rowCount).toBeGreaterThan(0);
    return await gatherEvidence(client, schemas, service.rolledBackIds);
  } finally {
    await client.query('rollback');
    client.release();
  }
}

function failedClaims(evidence: Evidence, given: Crash | undefined = crash): string[] {
  const checks = checkEvidence({ evidence, poisonId: service.poisonId, crash: given });
  return checks.filter(({ holds }) => !holds).map(({ claim }) => claim);
}

test('an honest history holds, with the right numbers', async () => {
  const evidence = await gatherEvidence(db.pool, schemas, service.rolledBackIds);
  expect(evidence).toMatchObject({
    orders: 3,
    committed: 9,
    delivered: 8,
    lost: 0,
    duplicates: 0,
    rolledBack: 3,
    leaked: 0,
    orderViolations: 0,
    dead: 1,
    deadLetters: [{ eventId: service.poisonId, type: 'order.paid', attempts: 5 }],
    status: { sent: 8, failed: 1, open: 0 },
  });
  expect(evidence.deadLetters[0]?.error).toContain('amount "12,50" is not a number');
  expect(evidence.retries).toBeGreaterThanOrEqual(4);
  expect(evidence.latencyMs.p50).toBeGreaterThan(0);
  expect(failedClaims(evidence)).toEqual([]);
});

describe('the proof fails when', () => {
  test('an event never reached its handler', async () => {
    const evidence = await evidenceAfter(
      `delete from shop.demo_deliveries where position = (select min(position) from shop.demo_deliveries)`,
    );
    expect(evidence).toMatchObject({ committed: 9, delivered: 7, lost: 1 });
    expect(failedClaims(evidence)).toEqual(['nothing lost', 'status agrees']);
  });

  test('an event is gone from the log', async () => {
    const evidence = await evidenceAfter(
      `delete from postcommit.outbox_events where seq = (select min(seq) from postcommit.outbox_events)`,
    );
    expect(evidence).toMatchObject({ committed: 9, lost: 1, leaked: 1 });
    expect(failedClaims(evidence)).toEqual(['nothing lost', 'nothing leaked']);
  });

  test('two events of an order were delivered in the wrong order', async () => {
    const evidence = await evidenceAfter(
      `with two as (
         select d.position, d.event_id from shop.demo_deliveries d join postcommit.outbox_events e on e.id = d.event_id
          where e.aggregate_id = '1' order by d.position limit 2
       )
       update shop.demo_deliveries d set event_id = other.event_id
         from two join two other on other.position <> two.position where d.position = two.position`,
    );
    expect(evidence).toMatchObject({ lost: 0, orderViolations: 1 });
    expect(failedClaims(evidence)).toEqual(['order kept']);
  });

  test('the log itself is not in the order in which the order changed', async () => {
    const evidence = await evidenceAfter(
      `update postcommit.outbox_events set payload = jsonb_set(payload, '{revision}', to_jsonb(5 - (payload ->> 'revision')::int))
        where aggregate_id = '1' and payload ->> 'revision' in ('2', '3')`,
    );
    expect(evidence).toMatchObject({ lost: 0, orderViolations: 1 });
    expect(failedClaims(evidence)).toEqual(['order kept']);
  });

  test('a handler saw an event that was rolled back', async () => {
    const evidence = await evidenceAfter(
      `insert into shop.demo_deliveries (event_id, relay, attempt) values ($1, 'relay A', 1)`,
      [service.rolledBackIds[0]],
    );
    expect(evidence).toMatchObject({ lost: 0, leaked: 1 });
    expect(failedClaims(evidence)).toEqual(['nothing leaked']);
  });

  test('the log has an event of a transaction that was rolled back', async () => {
    const evidence = await evidenceAfter(
      `insert into postcommit.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
       values ($1, 'order', '77', 'order.created', '{"revision": 1}')`,
      [service.rolledBackIds[0]],
    );
    expect(evidence).toMatchObject({ lost: 0, leaked: 1, status: { open: 1 } });
    expect(failedClaims(evidence)).toEqual(['nothing leaked', 'status agrees']);
  });

  test('the poison event left no dead letter', async () => {
    const evidence = await evidenceAfter('delete from postcommit.outbox_dead_letters');
    expect(evidence).toMatchObject({ lost: 1, dead: 0 });
    expect(failedClaims(evidence)).toEqual(['nothing lost', 'poison contained', 'status agrees']);
  });

  test('nobody took over from the killed relay, or none was killed', async () => {
    const evidence = await gatherEvidence(db.pool, schemas, service.rolledBackIds);
    expect(failedClaims(evidence, { ...crash, takeoverMs: undefined })).toEqual(['crash survived']);
    const checks = checkEvidence({ evidence, poisonId: service.poisonId, crash: undefined });
    expect(checks.find(({ claim }) => claim === 'crash survived')?.holds).toBe(false);
  });
});

test('a duplicate is counted and allowed', async () => {
  const evidence = await evidenceAfter(
    `insert into shop.demo_deliveries (event_id, relay, attempt)
     select event_id, 'relay C', 1 from shop.demo_deliveries order by position limit 2`,
  );
  expect(evidence).toMatchObject({ delivered: 8, duplicates: 2, orderViolations: 0 });
  expect(failedClaims(evidence)).toEqual([]);
});

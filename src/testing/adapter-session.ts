import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OutboxEvent } from '../emit/event.ts';
import type { Outbox } from '../emit/outbox.ts';
import { createOutbox } from '../emit/outbox.ts';
import type { AdapterClient, AdapterHarness, ConformanceDatabase } from './adapter-conformance.ts';
import type { ConformanceCheck } from './publisher-conformance.ts';

const waitMsMax = 15_000;
const pollMs = 20;

/** A client that is connected to the emptied database, for one check. */
export interface AdapterSession<Tx> {
  readonly harness: AdapterHarness<Tx>;
  readonly client: AdapterClient<Tx>;
  readonly outbox: Outbox<Tx>;
  /** Writes a business row in the transaction. */
  insertOrder(tx: Tx, id: string): Promise<void>;
  /** The payloads of the committed events, in order of `seq`. */
  payloads(): Promise<unknown[]>;
  /** Fails unless exactly these orders and payloads are committed, and every event is in the queue. */
  assertCommitted(expected: { orders: string[]; payloads: unknown[] }): Promise<void>;
  assertNothingCommitted(): Promise<void>;
}

export type AdapterCheck<Tx> = (session: AdapterSession<Tx>) => Promise<void>;

export function adapterCheck<Tx>(harness: AdapterHarness<Tx>, name: string, work: AdapterCheck<Tx>): ConformanceCheck {
  return { name, run: () => withAdapterSession(harness, work) };
}

export async function withAdapterSession<Tx>(
  harness: AdapterHarness<Tx>,
  work: AdapterCheck<Tx>,
  database = harness.database,
): Promise<void> {
  await empty(harness.database);
  const client = await harness.connect(database);
  try {
    await work(openSession(harness, client));
  } finally {
    await client.close();
  }
}

/** The same client, connected to the other database. */
export async function withOtherDatabase<Tx>(
  { harness }: AdapterSession<Tx>,
  work: (client: AdapterClient<Tx>) => Promise<void>,
): Promise<void> {
  await empty(harness.otherDatabase);
  const client = await harness.connect(harness.otherDatabase);
  try {
    await work(client);
  } finally {
    await client.close();
  }
}

async function empty(database: ConformanceDatabase): Promise<void> {
  await database.query('create table if not exists conformance_orders (id text primary key)');
  await database.query(
    'truncate conformance_orders, postcommit.outbox_events, postcommit.outbox_queue, postcommit.outbox_deliveries cascade',
  );
}

function openSession<Tx>(harness: AdapterHarness<Tx>, client: AdapterClient<Tx>): AdapterSession<Tx> {
  const { database } = harness;
  const session: AdapterSession<Tx> = {
    harness,
    client,
    outbox: createOutbox({ db: client.db, notify: false }),
    async insertOrder(tx, id) {
      await client.query(tx, 'insert into conformance_orders (id) values ($1)', [id]);
    },
    payloads: () => payloadsIn(database),
    async assertCommitted({ orders, payloads }) {
      const { rows } = await database.query('select id from conformance_orders order by id');
      assert.deepEqual(
        { orders: rows.map(({ id }) => id), payloads: await payloadsIn(database) },
        { orders, payloads },
        'the committed orders and payloads',
      );
      const queue = await database.query('select count(*)::integer as count from postcommit.outbox_queue');
      assert.equal(queue.rows[0]?.count, payloads.length, 'the number of events in the queue');
    },
    assertNothingCommitted: () => session.assertCommitted({ orders: [], payloads: [] }),
  };
  return session;
}

/** Read as text, so that no type parser of `pg` decides what a payload is. */
export async function payloadsIn(database: ConformanceDatabase): Promise<unknown[]> {
  const { rows } = await database.query('select payload::text as payload from postcommit.outbox_events order by seq');
  return rows.map(({ payload }) => JSON.parse(payload as string));
}

/** An event about an order. */
export function orderEvent(id: string, payload: unknown = { id }): OutboxEvent {
  return { type: 'order.changed', aggregate: ['order', id], payload };
}

/** Fails unless the promise rejects with this code. */
export async function assertCode(promise: Promise<unknown>, code: string): Promise<Error> {
  const error = await rejection(promise, `a rejection with ${code}`);
  assert.equal((error as { code?: unknown }).code, code, `expected ${code}, but: ${error}`);
  return error;
}

/** The error that the promise rejects with. */
export async function rejection(promise: Promise<unknown>, expected: string): Promise<Error> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: Error) => ({ error }),
  );
  if ('error' in outcome) return outcome.error;
  throw new assert.AssertionError({ message: `expected ${expected}, but it resolved` });
}

/** Waits until `condition` is true. */
export async function waitUntil(condition: () => Promise<boolean>, expected: string): Promise<void> {
  const deadline = performance.now() + waitMsMax;
  while (!(await condition())) {
    assert.ok(performance.now() < deadline, `waited ${waitMsMax} ms in vain until ${expected}`);
    await sleep(pollMs);
  }
}

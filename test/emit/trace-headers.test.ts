import { context, propagation, trace } from '@opentelemetry/api';
import { NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Outbox } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

const provider = new NodeTracerProvider();
let database: TestDatabase;
let outbox: Outbox<pg.PoolClient>;

beforeAll(async () => {
  provider.register();
  database = await createTestDatabase();
  outbox = createOutbox<pg.PoolClient>({ db: fromPg(database.pool), notify: false });
});
afterAll(async () => {
  await database.close();
  await provider.shutdown();
  trace.disable();
  context.disable();
  propagation.disable();
});

/** The headers that an event has in the log beside its own, in a trace with baggage. */
async function added(own: Record<string, string>): Promise<string[]> {
  const baggage = propagation.createBaggage({ tenant: { value: 'acme' } });
  const span = trace.getTracer('test').startSpan('request');
  const active = propagation.setBaggage(trace.setSpan(context.active(), span), baggage);
  const event = { type: 'order.created', aggregate: ['order', 7] as const, payload: null, headers: own };
  const id = await context.with(active, () => outbox.transaction((_tx, emit) => emit(event)));
  span.end();
  const [row] = await database.query('select headers from postcommit.outbox_events where id = $1', [id]);
  expect(row.headers).toMatchObject(own);
  return Object.keys(row.headers).filter((name) => !(name in own));
}

const names = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`h${n}`, 'x']));

describe('the trace context is added to an event as far as the limits of its headers allow', () => {
  test.each([
    [126, ['baggage', 'traceparent']],
    [127, ['traceparent']],
    [128, []],
  ])('%d names', async (count, expected) => {
    expect((await added(names(count))).sort()).toEqual(expected);
  });

  // A control character is six bytes of jsonb text, of which the database takes 65,536: these are 65,409, and traceparent is 74.
  test.each([
    [0, ['baggage', 'traceparent']],
    [53, ['traceparent']],
    [54, []],
  ])('10,900 control characters and %d others', async (count, expected) => {
    expect((await added({ a: '\u0001'.repeat(10_900) + 'x'.repeat(count) })).sort()).toEqual(expected);
  });
});

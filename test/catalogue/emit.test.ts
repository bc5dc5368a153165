import { type } from 'arktype';
import type pg from 'pg';
import * as v from 'valibot';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createOutbox, defineEvents, fromPg } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';

const events = defineEvents({
  'order.created': {
    version: 2,
    schema: z.object({ id: z.string(), customer: z.string().toLowerCase(), note: z.string().default('none') }),
    upcast: { 1: (v1: { id: string }) => ({ ...v1, customer: 'unknown' }) },
    orderingKey: ({ customer }) => customer,
    queue: 'orders',
  },
  'order.paid': { schema: v.object({ cents: v.number() }), orderingKey: () => null },
  'order.sent': { schema: type({ parcel: 'string' }) },
  'order.badKey': { orderingKey: () => undefined as never },
  'order.brokenKey': {
    orderingKey: () => {
      throw new Error('no key');
    },
  },
});
const aggregate = ['order', '1'] as const;

describe('an outbox with a catalogue', () => {
  let db: TestDatabase;
  beforeAll(async () => {
    db = await createTestDatabase();
  });
  afterAll(() => db.close());
  const outbox = () => createOutbox({ db: fromPg<pg.PoolClient>(db.pool), events, notify: false });
  const rowOf = async (id: string) => {
    const [row] = await db.query(
      'select payload, schema_version, ordering_key, queue from postcommit.outbox_events where id = $1',
      [id],
    );
    return row;
  };

  test('writes the payload as it was given, with the version, queue and key of its type', async () => {
    const payload = { id: '1', customer: 'ACME' };
    const id = await outbox().transaction([], { type: 'order.created', aggregate, payload });
    expect(await rowOf(id)).toEqual({ payload, schema_version: 2, ordering_key: 'acme', queue: 'orders' });
  });

  test('uses the key of emit before that of the type', async () => {
    const payload = { id: '1', customer: 'ACME' };
    const own = await outbox().transaction([], { type: 'order.created', aggregate, payload, key: 'own' });
    expect(await rowOf(own)).toMatchObject({ ordering_key: 'own' });
    const none = await outbox().transaction([], { type: 'order.created', aggregate, payload, key: null });
    expect(await rowOf(none)).toMatchObject({ ordering_key: '' });
    const unordered = await outbox().transaction([], { type: 'order.paid', aggregate, payload: { cents: 5 } });
    expect(await rowOf(unordered)).toMatchObject({ ordering_key: '', schema_version: 1, queue: null });
    const byAggregate = await outbox().transaction([], { type: 'order.sent', aggregate, payload: { parcel: 'a' } });
    expect(await rowOf(byAggregate)).toMatchObject({ ordering_key: null });
  });

  test.each([
    ['order.badKey', /orderingKey of order.badKey must be a string of 1 to 1000 bytes/],
    ['order.brokenKey', /orderingKey of order.brokenKey threw no key/],
  ] as const)('refuses the key of %s', async (refused, says) => {
    const emitted = outbox().transaction([], { type: refused, aggregate, payload: {} });
    await expect(emitted).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_EVENT',
      message: expect.stringMatching(says) as string,
    });
  });

  test('does not compile with an unknown type or a wrong payload', async () => {
    const refused = { code: expect.stringMatching(/^POSTCOMMIT_E_(PAYLOAD_INVALID|UNKNOWN_EVENT_TYPE)$/) as string };
    await outbox().transaction(async (tx, emit) => {
      const calls = [
        // @ts-expect-error -- there is no such type
        outbox().emit(tx, { type: 'order.craeted', aggregate, payload: {} }),
        // @ts-expect-error -- the customer is missing
        outbox().emit(tx, { type: 'order.created', aggregate, payload: { id: '1' } }),
        // @ts-expect-error -- cents is a number
        outbox().emit(tx, [{ type: 'order.paid', aggregate, payload: { cents: 'five' } }]),
        // @ts-expect-error -- the payload of another type
        outbox().emitOnce(tx, { id: crypto.randomUUID(), type: 'order.sent', aggregate, payload: { cents: 5 } }),
      ];
      for (const call of calls) await expect(call).rejects.toMatchObject(refused);
      await emit({ type: 'order.paid', aggregate, payload: { cents: 5 } });
      await emit([{ type: 'order.sent', aggregate, payload: { parcel: 'a' } }]);
    });
    // @ts-expect-error -- there is no such type
    await expect(outbox().transaction([], { type: 'order', aggregate, payload: {} })).rejects.toMatchObject(refused);
    const inside = outbox().transaction(async (_tx, emit) => {
      // @ts-expect-error -- cents is missing
      await emit({ type: 'order.paid', aggregate, payload: {} });
    });
    await expect(inside).rejects.toMatchObject(refused);
  });
});

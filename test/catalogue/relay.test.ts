import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { DeliveredEvent } from '../../src/index.ts';
import { createRelay, defineEvents } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const orderV1 = z.object({ id: z.string(), total: z.number() });
const events = defineEvents({
  'order.created': {
    version: 2,
    schema: z.object({ id: z.string(), cents: z.number(), at: z.coerce.date().default(new Date(0)) }),
    upcast: {
      1: (v1: z.infer<typeof orderV1>) => {
        if (v1.id === 'broken') throw new Error('cannot read this order');
        return { id: v1.id, cents: v1.total * 100 };
      },
    },
  },
  'order.paid': { schema: z.object({ by: z.string() }) },
  'order.checked': { schema: z.object({ id: z.string() }).refine(async ({ id }) => id !== 'bad', 'a bad id') },
  'invoice.sent': {},
});
/** What the service had before. */
const eventsBefore = defineEvents({ 'order.created': { schema: orderV1 } });

const created = (id: string, payload: unknown, schemaVersion = 1) => ({
  aggregateId: id,
  type: 'order.created',
  payload,
  schemaVersion,
});
const deadLetters = (scenario: RelayScenario) =>
  scenario.db.query<{ reason: string; error: string; target: string; code: string; attempts: number }>(
    `select d.reason, d.error, d.attempts, f.target, f.code
       from postcommit.outbox_dead_letters d join postcommit.outbox_failures f on f.seq = d.seq order by d.seq`,
  );

describe('a relay with a catalogue', () => {
  test(
    'gives handlers the newest version, read by the schema, and destinations what was stored',
    withScenario(async (scenario) => {
      const seen: DeliveredEvent[] = [];
      const changed: unknown[] = [];
      const publisher = new ScriptedPublisher();
      await scenario.emit([
        created('1', { id: '1', total: 7 }),
        created('2', { id: '2', cents: 5, at: '2026-01-02T00:00:00Z' }, 2),
        { aggregateId: '3', type: 'invoice.sent', payload: { n: 1 } },
        { aggregateId: '4', type: 'order.checked', payload: { id: '4' } },
        { aggregateId: '5', type: 'shipping.foreign', payload: { n: 2 } },
      ]);
      await scenario.relay('relay', {
        events,
        handlers: {
          'order.created': {
            // biome-ignore lint/suspicious/noExplicitAny: the scenario's options have no catalogue.
            first: (event: DeliveredEvent<any>) => {
              event.payload.cents = -1;
              changed.push(event.payload);
            },
          },
          '*': { audit: { handleBatch: (batch: readonly DeliveredEvent[]) => void seen.push(...batch) } },
        },
        destinations: { broker: publisher },
      } as never);
      await scenario.drained();
      const read = seen.sort((a, b) => Number(a.seq) - Number(b.seq));
      expect(read.map(({ payload, schemaVersion, storedVersion }) => [payload, schemaVersion, storedVersion])).toEqual([
        [{ id: '1', cents: 700, at: new Date(0) }, 2, 1],
        [{ id: '2', cents: 5, at: new Date('2026-01-02T00:00:00Z') }, 2, 2],
        [{ n: 1 }, 1, 1],
        [{ id: '4' }, 1, 1],
        [{ n: 2 }, 1, 1],
      ]);
      expect(JSON.parse(read[0]?.payloadJson ?? '')).toEqual({ id: '1', total: 7 });
      expect(changed).toHaveLength(2);
      const sent = publisher.received.map(({ body }) => JSON.parse(body.toString()) as Record<string, unknown>);
      expect(sent.find(({ eventId }) => eventId === read[0]?.id)).toMatchObject({
        schemaVersion: 1,
        data: { id: '1', total: 7 },
      });
    }),
  );

  test(
    'makes an event that it cannot read a dead letter, and goes on',
    withScenario(async (scenario) => {
      const handled: string[] = [];
      await scenario.emit([
        created('1', { id: 'broken', total: 1 }),
        created('2', { id: '2' }),
        { aggregateId: '3', type: 'order.paid', payload: {} },
        { aggregateId: '4', type: 'order.checked', payload: { id: 'bad' } },
        created('1', { id: 'after', total: 1 }),
      ]);
      const note = (event: DeliveredEvent<{ id: string }>) => handled.push(event.payload.id);
      await scenario.relay('relay', { events, handlers: { '*': { note } } as never, logger: false });
      await scenario.drained();
      const letters = await deadLetters(scenario);
      expect(letters.map(({ code, target, reason, attempts }) => [code, target, reason, attempts])).toEqual([
        ['POSTCOMMIT_E_UPCAST_FAILED', '*:note', 'rejected', 1],
        ['POSTCOMMIT_E_STORED_PAYLOAD_INVALID', '*:note', 'rejected', 1],
        ['POSTCOMMIT_E_STORED_PAYLOAD_INVALID', '*:note', 'rejected', 1],
        ['POSTCOMMIT_E_STORED_PAYLOAD_INVALID', '*:note', 'rejected', 1],
      ]);
      expect(letters[0]?.error).toMatch(/order.created, version 1 to 2: it threw cannot read this order/);
      expect(letters[1]?.error).toMatch(/order.created, upcast from version 1: cents: /);
      expect(letters[3]?.error).toMatch(/a bad id/);
      expect(handled).toEqual(['after']);
    }),
  );

  test(
    'leaves a newer version, and the events behind it, to a relay that knows it: no attempt counts',
    withScenario(async (scenario) => {
      const handled: [relay: string, id: string][] = [];
      const warned: [fields: object, message: string][] = [];
      const handlersOf = (relay: string) => ({
        'order.created': {
          note: {
            handle: (event: DeliveredEvent<{ id: string }>) => handled.push([relay, event.payload.id]),
            retry: { delaysMs: [] },
          },
        },
      });
      const older = await scenario.relay('older', {
        events: eventsBefore,
        handlers: handlersOf('older') as never,
        logger: { debug() {}, info() {}, warn: (fields, message) => void warned.push([fields, message]), error() {} },
      });
      await scenario.emit([
        created('1', { id: 'a', total: 1 }),
        created('1', { id: 'b', cents: 2 }, 2),
        created('1', { id: 'c', total: 3 }),
        created('2', { id: 'other', total: 1 }),
      ]);
      await until(() => older.stats().released >= 2, { timeoutMs: 20_000, what: 'the newer version was tried twice' });
      expect(handled.map(([, id]) => id).sort()).toEqual(['a', 'other']);
      expect(warned).toContainEqual([
        expect.objectContaining({
          event_id: expect.any(String),
          event_type: 'order.created',
          aggregate_id: '1',
          attempt: 1,
          version: 2,
        }),
        expect.stringContaining('version is newer than the catalogue'),
      ]);
      await scenario.relay('newer', { events, handlers: handlersOf('newer') as never });
      await scenario.drained();
      expect(handled.filter(([, id]) => id !== 'other').map(([, id]) => id)).toEqual(['a', 'b', 'c']);
      expect(handled.find(([, id]) => id === 'b')).toEqual(['newer', 'b']);
      expect(await scenario.db.query('select from postcommit.outbox_failures')).toHaveLength(0);
    }),
  );

  test.each(['deadLetter', 'deliver'] as const)('does with a newer version what %s says', async (unknownVersions) => {
    await withScenario(async (scenario) => {
      const payloads: unknown[] = [];
      await scenario.emit([created('1', { id: '1', cents: 2 }, 2)]);
      await scenario.relay('older', {
        events: eventsBefore,
        unknownVersions,
        handlers: { 'order.created': { note: (event: DeliveredEvent) => payloads.push(event.payload) } } as never,
        logger: false,
      });
      await scenario.drained();
      const letters = await deadLetters(scenario);
      expect(letters.map(({ code }) => code)).toEqual(
        unknownVersions === 'deliver' ? [] : ['POSTCOMMIT_E_UNKNOWN_VERSION'],
      );
      expect(payloads).toEqual(unknownVersions === 'deliver' ? [{ id: '1', cents: 2 }] : []);
    })();
  });

  test('refuses handlers and schedules that the catalogue does not have', () => {
    const connectionString = 'postgres://host/orders';
    const handle = () => {};
    const refused = (options: object) => () => createRelay({ connectionString, events, ...options } as never);
    expect(refused({ handlers: { 'order.craeted': { handle } } })).toThrow(/Did you mean order.created\?/);
    expect(refused({ handlers: { 'parcel.*': { handle } } })).toThrow(/handlers\['parcel.\*'\] has no event type/);
    const handlers = { '*': { handle } };
    const due = (event: object) => ({ handlers, schedules: { nightly: { cron: '0 3 * * *', event } } });
    expect(refused(due({ type: 'order.due', payload: {} }))).toThrow(/schedules.nightly: .*"order.due"/);
    expect(refused(due({ type: 'order.paid', payload: {} }))).toThrow(/schedules.nightly: .*order.paid: by: /);
    expect(refused(due({ type: 'order.checked', payload: { id: '1' } }))).toThrow(/is asynchronous/);
    expect(refused(due({ type: 'order.paid', payload: { by: 'card' } }))).not.toThrow();
  });

  test('handlers see the type of their payload', () => {
    const relay = createRelay({
      connectionString: 'postgres://host/orders',
      events,
      handlers: {
        'order.created': {
          plain: async (event) => event.payload.cents.toFixed() + event.payload.at.toISOString(),
          policy: { handle: (event, ctx) => `${event.payload.id} ${ctx.attempt}`, timeoutMs: 5 },
          batch: { handleBatch: (batch) => void batch.map((event) => event.payload.cents.toFixed()) },
          // @ts-expect-error -- the field of an older version
          older: (event) => event.payload.total,
        },
        'order.*': {
          union: (event) => {
            if (event.type === 'order.paid') return event.payload.by;
            // @ts-expect-error -- not for every type that is left
            void event.payload.cents;
            // @ts-expect-error -- the pattern does not match it
            return event.type === 'invoice.sent';
          },
        },
        '*': { audit: (event) => event.type === 'invoice.sent' },
      },
    });
    expect(relay.stats().state).toBe('idle');
    const misspelt = () =>
      createRelay({
        connectionString: 'postgres://host/orders',
        events,
        // @ts-expect-error -- there is no such type
        handlers: { 'order.craeted': { handle: () => {} } },
      });
    expect(misspelt).toThrow(/order.craeted/);
  });
});

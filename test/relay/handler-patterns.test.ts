import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg } from '../../src/index.ts';
import { resolveHandlers } from '../../src/relay/deliver/handler-options.ts';
import { defaultRetry } from '../../src/relay/event/retry-policy.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { nextEvent } from '../support/wait.ts';

const broken = () => {
  throw new Error('not yet');
};

describe('handlers of a pattern', () => {
  test(
    'get the events of every type that matches, beside the handlers of the type',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const note = (name: string) => (event: { type: string }) => void calls.push(`${name} ${event.type}`);
      const types = ['order.created', 'order.item.added', 'order', 'invoice.sent', 'order.*'];
      await scenario.emit(types.map((type) => ({ type, aggregateId: 'a' })));
      const relay = await scenario.relay('one', {
        noHandler: 'fail',
        handlers: {
          'order.created': { mail: note('mail') },
          'order.*': { audit: note('audit') },
          '*': { count: note('count') },
        },
      });
      await scenario.drained();
      expect(relay.stats()).toMatchObject({ delivered: 5, deadLettered: 0 });
      expect(calls).toEqual([
        ...['mail order.created', 'audit order.created', 'count order.created'],
        ...['audit order.item.added', 'count order.item.added', 'count order', 'count invoice.sent'],
        ...['audit order.*', 'count order.*'],
      ]);
      const deliveries = await scenario.db.query(
        'select distinct targets from postcommit.outbox_deliveries order by 1',
      );
      expect(deliveries.map(({ targets }) => targets.toSorted()).toSorted()).toEqual([
        ['*:count'],
        ['*:count', 'mail', 'order.*:audit'],
        ['*:count', 'order.*:audit'],
      ]);
      const [registered] = await scenario.db.query('select targets from postcommit.outbox_relays');
      expect(registered.targets.toSorted()).toEqual(['*:count', 'order.*:audit', 'order.created:mail']);
    }),
  );

  test(
    'keep their progress apart from a handler of the same name',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emit([{ type: 'order.created', aggregateId: 'a' }]);
      await scenario.relay('one', {
        retry: { delaysMs: [0, 0] },
        handlers: {
          'order.created': { audit: (_event, ctx) => void calls.push(`${ctx.handler} ${ctx.attempt}`) },
          'order.*': {
            audit: (event, ctx) => {
              calls.push(`${ctx.handler} ${ctx.attempt}`);
              expect(ctx.idempotencyKey).toBe(`${event.id}:order.*:audit`);
              if (ctx.attempt < 3) throw new Error('not yet');
            },
          },
        },
      });
      await scenario.drained();
      expect(calls).toEqual(['audit 1', 'order.*:audit 1', 'order.*:audit 2', 'order.*:audit 3']);
    }),
  );

  test(
    'are owed under the name of the pattern: a relay that has it delivers, another one leaves the event alone',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emit([{ type: 'order.created', aggregateId: 'a' }]);
      const mail = () => void calls.push('mail');
      const before = await scenario.relay('before', {
        retry: { delaysMs: Array(100).fill(30) },
        handlers: { 'order.created': { mail }, 'order.*': { audit: broken } },
      });
      await nextEvent(before, 'failed');
      await before.stop();
      await scenario.idleRelay('without', { handlers: { 'order.created': { mail } } }).runOnce();
      expect(await scenario.queued()).toBe(1);
      await scenario.relay('with', { handlers: { 'order.*': { audit: () => void calls.push('audit') } } });
      await scenario.drained();
      expect(calls).toEqual(['mail', 'audit']);
    }),
  );

  test(
    'can be forgotten: the event counts as delivered to the other handlers',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const [id = ''] = await scenario.emit([{ type: 'order.created', aggregateId: 'a' }]);
      const handlers = { 'order.created': { mail: () => void calls.push('mail') } };
      const before = await scenario.relay('before', {
        retry: { delaysMs: Array(100).fill(30) },
        handlers: { ...handlers, 'order.*': { audit: broken } },
      });
      await nextEvent(before, 'failed');
      await before.stop();
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      expect((await admin.find(id))?.owed).toEqual(['order.*:audit']);
      expect(await admin.forget('order.*:audit')).toMatchObject({ queued: 1, inFlight: 0 });
      await scenario.relay('after', { handlers });
      await scenario.drained();
      expect(calls).toEqual(['mail']);
    }),
  );
});

test.each([
  ['a star that is not at the end', { 'order.*.created': { mail: () => {} } }],
  ['two stars', { 'order.**': { mail: () => {} } }],
  ['a star in the name of a handler', { 'order.created': { 'ma*il': () => {} } }],
])('refuses %s', (_name, handlers) => {
  expect(() => resolveHandlers(handlers, { deliverTimeoutMs: 30_000, retry: defaultRetry })).toThrow(
    expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringContaining('*') }),
  );
});

import { describe, expect, test } from 'vitest';
import type { DeliveredEvent, HandlerContext } from '../../src/index.ts';
import { withScenario } from '../support/relay-scenario.ts';

describe('what a handler is given', () => {
  test(
    'the event and its context',
    withScenario(async (scenario) => {
      const seen: { event: DeliveredEvent; ctx: HandlerContext }[] = [];
      const [id] = await scenario.emit([
        { aggregateId: '7', payload: { total: 9.5, ключ: ['é', null] }, headers: { tenant: 'blue' }, schemaVersion: 3 },
      ]);
      await scenario.emit([{ aggregateId: '7', key: 'customer-1', payload: null }]);
      await scenario.emit([{ aggregateId: '7', key: null, payload: 'text' }]);
      const handler = (event: DeliveredEvent, ctx: HandlerContext) => void seen.push({ event, ctx });
      await scenario.idleRelay('one', { handlers: { scripted: { note: handler } } }).runOnce();
      seen.sort((a, b) => Number(a.event.seq) - Number(b.event.seq));
      const { event, ctx } = seen[0] as (typeof seen)[0];
      expect({ ...event, id: event.id }).toEqual({ id });
      expect(event.type).toBe('scripted');
      expect(event.aggregate).toEqual({ type: 'thing', id: '7' });
      expect(event.schemaVersion).toBe(3);
      expect(event.seq).toBe('1');
      expect(event.payload).toEqual({ total: 9.5, ключ: ['é', null] });
      expect(event.payload).toBe(event.payload);
      expect(JSON.parse(event.payloadJson)).toEqual(event.payload);
      expect(event.headers).toMatchObject({ tenant: 'blue' });
      const [{ ms }] = await scenario.db.query(
        'select extract(epoch from created_at) * 1000 as ms from postcommit.outbox_events where seq = 1',
      );
      expect(Math.abs(event.occurredAt.getTime() - Number(ms))).toBeLessThan(1);
      expect(seen.map(({ event: { key } }) => key)).toEqual(['thing:7', 'customer-1', null]);
      expect(seen[1]?.event.payload).toBeNull();
      expect(ctx).toMatchObject({ attempt: 1, handler: 'note', idempotencyKey: `${id}:note` });
      expect(ctx.signal.aborted).toBe(false);
    }),
  );
});

import { describe, expect, test } from 'vitest';
import { withScenario } from '../support/relay-scenario.ts';
import { until } from '../support/wait.ts';

describe('G3 at least once, one identity', () => {
  test(
    'a retry carries the same id and idempotency key, and the attempt counts up',
    withScenario(async (scenario) => {
      const [id] = await scenario.emit([{ aggregateId: 'a', script: { failTimes: 3 } }]);
      await scenario.relay('one', { retry: { delaysMs: [0, 5, 10] } });
      await scenario.drained();
      const calls = scenario.journal.read().filter(({ phase }) => phase === 'begin');
      expect(calls.map(({ attempt }) => attempt)).toEqual([1, 2, 3, 4]);
      for (const call of calls) expect(call).toMatchObject({ id, idempotencyKey: `${id}:script` });
    }),
  );

  test(
    'so does a redelivery after a crash, and a crash is no attempt',
    withScenario(async (scenario) => {
      const victim = await scenario.child('victim', { leaseMs: 600 });
      const [id] = await scenario.emit([{ aggregateId: 'a', script: { hangIn: 'victim' } }]);
      await until(() => scenario.journal.read().length === 1, { what: 'the handler runs' });
      victim.kill('SIGKILL');
      await scenario.relay('survivor', { leaseMs: 600 });
      await scenario.drained();
      const calls = scenario.journal.read().filter(({ phase }) => phase === 'begin');
      expect(calls).toMatchObject([
        { relay: 'victim', id, idempotencyKey: `${id}:script`, attempt: 1 },
        { relay: 'survivor', id, idempotencyKey: `${id}:script`, attempt: 1 },
      ]);
    }),
  );

  test(
    'each handler has an idempotency key of its own',
    withScenario(async (scenario) => {
      const seen: string[] = [];
      const handler = (_event: unknown, ctx: { idempotencyKey: string }) => void seen.push(ctx.idempotencyKey);
      const [id] = await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.idleRelay('one', { handlers: { scripted: { mail: handler, index: handler } } }).runOnce();
      expect(seen).toEqual([`${id}:mail`, `${id}:index`]);
    }),
  );
});

import { describe, expect, test } from 'vitest';
import type { BatchHandler, Handler, Relay } from '../../src/index.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { deferred, until } from '../support/wait.ts';

/** `report` handlers that run until the test ends them, and `mail` handlers that end at once. */
function work() {
  const gate = deferred();
  const reports: string[] = [];
  const mails: string[] = [];
  const report: Handler = async ({ aggregate }) => {
    reports.push(aggregate.id);
    await gate.promise;
  };
  const mail: Handler = ({ aggregate }) => void mails.push(aggregate.id);
  const countOf = (pattern: RegExp) => mails.filter((id) => pattern.test(id)).length;
  return { report, mail, reports, countOf, end: () => gate.resolve() };
}

type Work = ReturnType<typeof work>;

const mailsOf = (aggregateId: string, count: number) =>
  Array.from({ length: count }, () => ({ type: 'mail', aggregateId }));

const mailsTo = (name: string, count: number) =>
  Array.from({ length: count }, (_, n) => ({ type: 'mail', aggregateId: `${name} ${n}` }));

const reportOf = (aggregateId: string, queue = 'default') => ({ type: 'report', aggregateId, queue });

/** Others do not wait for blocked aggregates, and the relay leaves what is blocked in the queue. */
async function expectOthersToPass(scenario: RelayScenario, relay: Relay, { countOf }: Work): Promise<void> {
  let sent = countOf(/other/);
  const passes = async (count: number) => {
    await scenario.emit(mailsTo('other', count));
    sent += count;
    await until(() => countOf(/other/) === sent, { timeoutMs: 5_000, what: 'mails of other aggregates are sent' });
  };
  await passes(10);
  const claimsNothingElse = async () => {
    const before = relay.stats().claimed;
    const sentBefore = sent;
    const until = performance.now() + 1_500; // Longer than excess events are released for.
    while (performance.now() < until) await passes(1);
    return relay.stats().claimed - before === sent - sentBefore;
  };
  await until(claimsNothingElse, { timeoutMs: 20_000, what: 'only what can start is claimed' });
}

/** Others pass while the key `k` waits. When the work in front of it ends, all its mails are sent. */
async function expectOnlyTheKeyToWait(scenario: RelayScenario, relay: Relay, all: Work, mails: number): Promise<void> {
  await expectOthersToPass(scenario, relay, all);
  expect(all.countOf(/k/)).toBe(0);
  all.end();
  await scenario.drained();
  expect(all.countOf(/k/)).toBe(mails);
}

describe('aggregates that wait for something else than a slot of their queue delay no others', () => {
  test(
    'one with a long backlog, behind an event of a full queue',
    withScenario(async (scenario) => {
      const all = work();
      const handlers = { report: { all: all.report }, mail: { all: all.mail } };
      const relay = await scenario.relay('one', { queues: { default: 100, reports: 2 }, handlers });
      await scenario.emit(['x', 'y'].map((id) => reportOf(id, 'reports')));
      await until(() => all.reports.length === 2, { what: 'the queue is full' });
      await scenario.emit([reportOf('k', 'reports'), ...mailsOf('k', 300)]);
      await expectOnlyTheKeyToWait(scenario, relay, all, 300);
    }),
    60_000,
  );

  test.each([
    { prefetchMax: 4_000, what: 'with room to spare' },
    { prefetchMax: 40, what: 'with no room to spare' },
  ])(
    'many with one event each, behind events of a full queue, $what',
    ({ prefetchMax }) =>
      withScenario(async (scenario) => {
        const all = work();
        const handlers = { report: { all: all.report }, mail: { all: all.mail } };
        const ids = Array.from({ length: 300 }, (_, n) => `k${n}`);
        await scenario.emit(ids.map((id) => reportOf(id, 'reports')));
        await scenario.emit(ids.flatMap((id) => mailsOf(id, 1)));
        const queues = { default: 10, reports: 10 };
        const relay = await scenario.relay('one', { queues, prefetchMax, batchSizeMax: 20, handlers });
        await until(() => all.reports.length === 10, { what: 'the queue is full' });
        await expectOnlyTheKeyToWait(scenario, relay, all, 300);
      })(),
    60_000,
  );

  test(
    'behind an event for a handler at its limit',
    withScenario(async (scenario) => {
      const all = work();
      const handlers = { report: { all: { handle: all.report, inFlightMax: 2 } }, mail: { all: all.mail } };
      const relay = await scenario.relay('one', { handlers });
      await scenario.emit(['x', 'y'].map((id) => reportOf(id)));
      await until(() => all.reports.length === 2, { what: 'the handler is at its limit' });
      await scenario.emit([reportOf('k'), ...mailsOf('k', 300)]);
      await expectOnlyTheKeyToWait(scenario, relay, all, 300);
    }),
    60_000,
  );

  test(
    'behind an event of a batch under way',
    withScenario(async (scenario) => {
      const all = work();
      const bulk: BatchHandler = {
        handleBatch: (events, ctx) =>
          Promise.all(events.map((event) => all.report(event, ctx as never))).then(() => {}),
        batchSizeMax: 2,
        inFlightMax: 1,
      };
      const handlers = { report: { bulk }, mail: { all: all.mail } };
      const relay = await scenario.relay('one', { handlers });
      await scenario.emit(['x', 'k'].map((id) => reportOf(id)));
      await until(() => all.reports.length === 2, { what: 'the batch is under way' });
      await scenario.emit(mailsOf('k', 300));
      await expectOnlyTheKeyToWait(scenario, relay, all, 300);
    }),
    60_000,
  );

  test(
    'behind an event whose payload cannot be loaded yet',
    withScenario(async (scenario) => {
      const all = work();
      const handlers = { report: { all: all.report }, mail: { all: all.mail } };
      const relay = await scenario.relay('one', { handlers, inFlightBytesMax: 65_536 });
      const payload = { text: 'x'.repeat(100_000) };
      await scenario.emit([{ ...reportOf('x'), payload }]);
      await until(() => all.reports.length === 1, { what: 'a large payload is in use' });
      await scenario.emit([{ ...reportOf('k'), payload }, ...mailsOf('k', 300)]);
      await expectOnlyTheKeyToWait(scenario, relay, all, 300);
    }),
    60_000,
  );
});

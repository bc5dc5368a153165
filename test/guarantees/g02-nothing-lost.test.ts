import { describe, expect, test } from 'vitest';
import type { Child } from '../support/child.ts';
import { type PostgresProxy, statement } from '../support/postgres-proxy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { until, within } from '../support/wait.ts';

const limits = { leaseMs: 1_000, batchSizeMax: 10, prefetchMax: 30, inFlightMax: 4, pollIntervalMs: 200 };
const retry = { delaysMs: [10, 10, 10] };

interface Crash {
  scenario: RelayScenario;
  proxy: PostgresProxy;
  victim: Child;
}

/** Runs a relay in a process of its own through a proxy, and kills it where `reach` says. */
function crashAt(reach: (crash: Crash) => Promise<void>): () => Promise<void> {
  return withScenario(async (scenario) => {
    const proxy = await scenario.proxy();
    const connectionString = proxy.url(scenario.db.url);
    const victim = await scenario.child('victim', { ...limits, retry, connectionString, stopTimeoutMs: 1_000 });
    await reach({ scenario, proxy, victim });
    victim.kill('SIGKILL');
    await victim.exited;

    const held = await until(() => leasedSeqs(scenario), { what: 'the victim’s leases are known' });
    await scenario.relay('survivor', { ...limits, retry });
    await scenario.drained();
    const findings = await scenario.findings({ killed: ['victim'] });
    expect(findings).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
    await expectBoundedDuplicates(scenario, held);
  });
}

async function leasedSeqs(scenario: RelayScenario): Promise<string[]> {
  const rows = await scenario.db.query('select seq::text from postcommit.outbox_queue where claimed_by is not null');
  return rows.map(({ seq }) => seq);
}

/** Only what the victim still held can come twice, each once more, with the same identity and no attempt lost. */
async function expectBoundedDuplicates(scenario: RelayScenario, held: string[]): Promise<void> {
  const ids = new Map(
    (await scenario.db.query('select seq::text, id from postcommit.outbox_events')).map((e) => [e.seq, e.id]),
  );
  const ended = new Map<string, number>();
  for (const entry of scenario.journal.read()) {
    expect(entry.id).toBe(ids.get(entry.seq));
    expect(entry.idempotencyKey).toBe(`${entry.id}:script`);
    if (entry.phase === 'end') ended.set(entry.seq, (ended.get(entry.seq) ?? 0) + 1);
  }
  for (const [seq, count] of ended)
    expect(count, `deliveries of ${seq}`).toBeLessThanOrEqual(held.includes(seq) ? 2 : 1);
  // A takeover is no attempt: every event needed exactly the failures that its script asked for.
  const [{ wrong }] = await scenario.db.query(
    `select count(*)::integer as wrong from postcommit.outbox_events e
       left join lateral (select count(*) as n from postcommit.outbox_failures f where f.seq = e.seq) f on true
      where f.n <> coalesce((e.payload ->> 'failTimes')::integer, 0)`,
  );
  expect(wrong).toBe(0);
}

/** Three aggregates, every fifth event fails once. */
async function emitSome(scenario: RelayScenario): Promise<void> {
  await scenario.emit(
    Array.from({ length: 60 }, (_, n) => ({ aggregateId: `a${n % 3}`, script: { failTimes: n % 5 === 3 ? 1 : 0 } })),
  );
}

describe('G2 nothing lost: a relay killed', () => {
  test(
    'before its claim arrives',
    crashAt(async ({ scenario, proxy }) => {
      const claim = proxy.holdRequest({ text: statement.claim });
      await emitSome(scenario);
      await within(claim.caught, { what: 'a claim was sent' });
      expect(await leasedSeqs(scenario)).toEqual([]);
    }),
  );

  test(
    'after its claim committed, before the answer arrives',
    crashAt(async ({ scenario, proxy }) => {
      let claim = proxy.holdAnswer({ text: statement.claim });
      await emitSome(scenario);
      await within(claim.caught, { what: 'a claim was executed' });
      // It may have found nothing yet, or more than it was made for; one of the next brings the events.
      for (let n = 0; n < 5 && (await leasedSeqs(scenario)).length === 0; n++) {
        const next = proxy.holdAnswer({ text: statement.claim });
        claim.release();
        claim = next;
        await within(claim.caught, { what: 'another claim was executed' });
      }
      expect((await leasedSeqs(scenario)).length).toBeGreaterThan(0);
      expect(scenario.journal.read()).toEqual([]);
    }),
  );

  test(
    'with events claimed and not begun, others in the handler',
    crashAt(async ({ scenario }) => {
      await scenario.emit(['a', 'b', 'c', 'd'].map((aggregateId) => ({ aggregateId, script: { hangIn: 'victim' } })));
      await emitSome(scenario);
      await until(() => scenario.journal.read().length === 4, { what: 'all slots are taken' });
      await until(async () => (await leasedSeqs(scenario)).length > limits.inFlightMax, { what: 'more are claimed' });
    }),
  );

  test(
    'after the handler returned, before the result is sent',
    crashAt(async ({ scenario, proxy }) => {
      const settle = proxy.holdRequest({ text: statement.settle });
      await emitSome(scenario);
      await within(settle.caught, { what: 'a result was sent' });
      expect(scenario.journal.ends().length).toBeGreaterThan(0);
    }),
  );

  test(
    'after the result committed, before that is answered',
    crashAt(async ({ scenario, proxy }) => {
      const settle = proxy.holdAnswer({ text: statement.settle, after: 1 });
      await emitSome(scenario);
      await within(settle.caught, { what: 'a result was written' });
    }),
  );

  test(
    'before a failure is sent',
    crashAt(async ({ scenario, proxy }) => {
      const fail = proxy.holdRequest({ text: statement.fail });
      await emitSome(scenario);
      await within(fail.caught, { what: 'a failure was sent' });
    }),
  );

  test(
    'after a failure committed, before that is answered',
    crashAt(async ({ scenario, proxy }) => {
      const fail = proxy.holdAnswer({ text: statement.fail });
      await emitSome(scenario);
      await within(fail.caught, { what: 'a failure was written' });
    }),
  );

  test(
    'while it stops, before it gave anything back',
    crashAt(async ({ scenario, proxy, victim }) => {
      await scenario.emit(['a', 'b', 'c', 'd'].map((aggregateId) => ({ aggregateId, script: { hangIn: 'victim' } })));
      await emitSome(scenario);
      await until(async () => (await leasedSeqs(scenario)).length > limits.inFlightMax, { what: 'more are claimed' });
      const release = proxy.holdRequest({ text: statement.fail });
      victim.kill('SIGTERM');
      await within(release.caught, { what: 'it gives back' });
    }),
  );

  test(
    'while it stops, before it deregistered',
    crashAt(async ({ scenario, proxy, victim }) => {
      await scenario.emit(['a', 'b', 'c', 'd'].map((aggregateId) => ({ aggregateId, script: { hangIn: 'victim' } })));
      await emitSome(scenario);
      await until(async () => (await leasedSeqs(scenario)).length > limits.inFlightMax, { what: 'more are claimed' });
      const end = proxy.holdRequest({ text: statement.end });
      victim.kill('SIGTERM');
      await within(end.caught, { what: 'it deregisters' });
    }),
  );
});

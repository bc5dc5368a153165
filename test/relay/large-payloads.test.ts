import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type Handlers } from '../../src/index.ts';
import { postgresVersions, serverUrlOf } from '../support/postgres-versions.ts';
import { RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { type Deferred, deferred, nextEvent, until } from '../support/wait.ts';

/** Every version of the statement that loads one payload has this text. */
const loadStatement = /plain_payload/;

/** Inserts one event per aggregate, with a payload of about this many bytes that does not compress. */
async function insertLarge(scenario: RelayScenario, aggregateIds: readonly string[], bytes: number, more = {}) {
  await scenario.db.query('alter table postcommit.outbox_events alter column payload set storage external');
  await scenario.db.query(
    `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
     select 'thing', a.id, 'scripted', jsonb_build_object('pad', pad.text || '€') || $3::jsonb
       from unnest($1::text[]) with ordinality as a(id, n),
            (select string_agg(md5(i::text), '') as text from generate_series(1, $2::integer / 32) i) pad
      order by a.n`,
    [aggregateIds, bytes, JSON.stringify(more)],
  );
}

const names = (prefix: string, count: number) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

/** A handler that notes the aggregates it is called for, and waits for `goOn` with those that `waits` says. */
function noting(calls: string[], waits: (aggregateId: string) => boolean, goOn: Deferred<void>): Handlers {
  return {
    scripted: {
      note: async (event) => {
        calls.push(event.aggregate.id);
        if (waits(event.aggregate.id)) await goOn.promise;
      },
    },
  };
}

interface DeadLetter {
  code: string;
  reason: string;
  error: string;
  attempts: number;
}

async function deadLetters({ db }: RelayScenario): Promise<DeadLetter[]> {
  return db.query<DeadLetter>(
    `select f.code, d.reason, d.error, d.attempts from postcommit.outbox_dead_letters d
       join postcommit.outbox_failures f using (seq)`,
  );
}

describe('a payload too large to come with its claim', () => {
  test(
    'takes its time on the network without keeping claims waiting',
    withScenario(async (scenario) => {
      const { hostname, port } = new URL(scenario.db.url);
      const proxy = await startTcpProxy({ host: hostname, port: Number(port) });
      try {
        const calls: string[] = [];
        const handlers = noting(calls, () => false, deferred());
        const relay = await scenario.relay('one', { connectionString: proxy.url(scenario.db.url), handlers });
        proxy.throttle(1_000_000);
        const claimed = nextEvent(relay, 'claimed');
        await insertLarge(scenario, ['large'], 4_000_000);
        await claimed;
        for (const aggregateId of ['a', 'b', 'c']) {
          const delivered = nextEvent(relay, 'delivered');
          await scenario.emit([{ aggregateId }]);
          await delivered;
        }
        expect(calls).toEqual(['a', 'b', 'c']);
        await until(() => relay.stats().delivered === 4, { what: 'all are delivered' });
        expect(calls).toEqual(['a', 'b', 'c', 'large']);
        expect(relay.stats()).toMatchObject({ delivered: 4, released: 0, failed: 0 });
      } finally {
        await proxy.close();
      }
    }),
  );

  test(
    'that cannot be loaded goes back twice at no cost, and then an attempt counts',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const calls: string[] = [];
      const relay = await scenario.relay('one', {
        connectionString: proxy.url(scenario.db.url),
        handlers: noting(calls, () => false, deferred()),
        retry: { delaysMs: [10, 10, 10] },
      });
      const retried = nextEvent<{ error: string; attempt: number }>(relay, 'failed', 20_000);
      let trap = proxy.holdRequest({ text: loadStatement });
      await insertLarge(scenario, ['large'], 50_000);
      for (let failure = 1; failure <= 3; failure++) {
        await trap.caught;
        trap.cut();
        if (failure < 3) trap = proxy.holdRequest({ text: loadStatement });
      }
      expect(await retried).toMatchObject({
        attempt: 1,
        error: expect.stringMatching(/could not be loaded.*3 loads in a row/),
      });
      await until(() => relay.stats().delivered === 1, { what: 'it is delivered' });
      expect(calls).toEqual(['large']);
      expect(relay.stats()).toMatchObject({ delivered: 1, released: 2, failed: 1, deadLettered: 0 });
      expect(await scenario.db.query('select code, attempt from postcommit.outbox_failures')).toEqual([
        { code: 'POSTCOMMIT_E_PAYLOAD_NOT_LOADED', attempt: 1 },
      ]);
    }),
  );

  test.each(postgresVersions)('that PostgreSQL %i cannot write as text is a dead letter at once', async (version) => {
    const scenario = await RelayScenario.create({ serverUrl: serverUrlOf(version) });
    try {
      const calls: string[] = [];
      // 8,300 numbers of 131,072 digits have more than 1 GB.
      await scenario.db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'thing', 'a', 'scripted', jsonb_build_object('pad', pad.text, 'numbers', numbers.list)
           from (select string_agg(md5(i::text), '') as text from generate_series(1, 2000) i) pad,
                (select jsonb_agg('1e131071'::numeric) as list from generate_series(1, 8300)) numbers`,
      );
      await scenario.emit([{ aggregateId: 'a' }, { aggregateId: 'b' }]);
      await scenario.relay('one', { handlers: noting(calls, () => false, deferred()) });
      await scenario.drained(55_000);
      expect(await deadLetters(scenario)).toEqual([
        {
          code: 'POSTCOMMIT_E_PAYLOAD_UNREADABLE',
          reason: 'rejected',
          error: expect.stringMatching(/cannot convert.*at least 830000000 digits/),
          attempts: 1,
        },
      ]);
      expect(calls.sort()).toEqual(['a', 'b']);
    } finally {
      await scenario.close();
    }
  });

  test(
    'over loadBytesMax is a dead letter at once, and is delivered once the limit allows it',
    withScenario(async (scenario) => {
      const proxy = await scenario.proxy();
      const calls: string[] = [];
      const handlers = noting(calls, () => false, deferred());
      const connectionString = proxy.url(scenario.db.url);
      await insertLarge(scenario, ['a'], 30_000);
      await insertLarge(scenario, ['b'], 200_000);
      await insertLarge(scenario, ['b'], 3_000_000); // So large that the server need not convert it to know.
      const strict = await scenario.relay('one', { connectionString, handlers, loadBytesMax: 100_000 });
      await scenario.drained();
      const error = expect.stringMatching(/larger than loadBytesMax.*at least \d{6} bytes.*100000/);
      const expected = { code: 'POSTCOMMIT_E_PAYLOAD_OVER_LOAD_LIMIT', reason: 'rejected', error, attempts: 1 };
      expect(await deadLetters(scenario)).toEqual([expected, expected]);
      expect(calls).toEqual(['a']);
      expect(proxy.bytesFromServer('loads')).toBeLessThan(100_000);
      await strict.stop();
      await createOutbox({ db: fromPg(scenario.db.pool) }).admin.retry({ all: true });
      await scenario.relay('two', { connectionString, handlers });
      await scenario.drained();
      expect(calls).toEqual(['a', 'b', 'b']);
    }),
  );

  test(
    'whose delivery hangs keeps no smaller one from being delivered',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      const goOn = deferred();
      const relay = await scenario.relay('one', {
        handlers: noting(calls, (id) => id.startsWith('large'), goOn),
        inFlightBytesMax: 1_048_576,
        inFlightMax: 4,
        batchSizeMax: 4,
      });
      // More than the relay would hold at once.
      await insertLarge(scenario, names('large', 30), 300_000);
      await until(() => calls.length > 0, { what: 'a large one is being delivered' });
      await scenario.emit(names('inline', 10).map((aggregateId) => ({ aggregateId })));
      await insertLarge(scenario, names('small', 10), 25_000);
      await until(() => relay.stats().delivered === 20, { what: 'the smaller ones are delivered', timeoutMs: 15_000 });
      expect(calls.filter((id) => !id.startsWith('large')).sort()).toEqual([
        ...names('inline', 10),
        ...names('small', 10),
      ]);
      goOn.resolve();
      await until(() => relay.stats().delivered === 50, { what: 'all are delivered' });
      expect(relay.stats()).toMatchObject({ delivered: 50, failed: 0, deadLettered: 0 });
    }),
  );

  test(
    'is delivered beside others only as far as inFlightBytesMax goes, and alone if it is larger',
    withScenario(async (scenario) => {
      const inFlightBytesMax = 2_097_152;
      let inFlight = 0;
      const seen: { size: number; inFlight: number }[] = [];
      await insertLarge(scenario, names('a', 40), 60_000);
      await insertLarge(scenario, names('b', 15), 400_000);
      await insertLarge(scenario, names('c', 2), 5_000_000);
      await insertLarge(scenario, names('d', 15), 400_000);
      await insertLarge(scenario, names('e', 40), 60_000);
      const relay = await scenario.relay('one', {
        inFlightBytesMax,
        handlers: {
          scripted: {
            measure: async (event) => {
              const size = event.payloadJson.length;
              inFlight += size;
              seen.push({ size, inFlight });
              await new Promise((resolve) => setTimeout(resolve, 20));
              inFlight -= size;
            },
          },
        },
      });
      await until(() => relay.stats().delivered === 112, { what: 'all are delivered' });
      expect(relay.stats()).toMatchObject({ delivered: 112, released: 0, failed: 0, deadLettered: 0 });
      const largest = (n: number) => Math.max(...seen.filter(({ size }) => size < n).map((each) => each.inFlight));
      // Beside one that is larger than its half there is at most the other half.
      expect(largest(Number.POSITIVE_INFINITY)).toBeLessThanOrEqual(5_100_000 + inFlightBytesMax / 2);
      const withoutLargest = seen.filter((each) => each.inFlight < 5_000_000);
      expect(Math.max(...withoutLargest.map((each) => each.inFlight))).toBeLessThanOrEqual(inFlightBytesMax);
      expect(seen.some((each) => each.inFlight > each.size)).toBe(true);
    }),
  );

  test(
    'fits a process with a heap of 256 MB, as do many others and small ones in between',
    withScenario(async (scenario) => {
      for (let n = 0; n < 2; n++) {
        // With a character beyond Latin-1 a text takes two bytes a character: these are 380 MB, parsed and not.
        await insertLarge(scenario, names(`large${n}-`, 6), 8_000_000, { workMs: 1_500 });
        await scenario.emit(names(`small${n}-`, 50).map((aggregateId) => ({ aggregateId })));
      }
      const child = await scenario.child('one', {}, { env: { NODE_OPTIONS: '--max-old-space-size=256' } });
      await Promise.race([
        scenario.drained(30_000),
        child.exited.then(() => Promise.reject(new Error(`the relay ended:\n${child.stderr().slice(-2_000)}`))),
      ]);
      expect(await scenario.findings()).toEqual({ lost: [], orderViolations: [], overlaps: [], duplicates: 0 });
    }),
  );
});

test(
  'payloads that come with claims are held only as far as prefetchBytesMax goes',
  withScenario(async (scenario) => {
    const payloadBytes = 10_000;
    await scenario.emit(names('a', 400).map((aggregateId) => ({ aggregateId, payload: 'x'.repeat(payloadBytes) })));
    const calls: string[] = [];
    const goOn = deferred();
    const prefetchBytesMax = 1_048_576;
    await scenario.relay('one', { handlers: noting(calls, () => true, goOn), inFlightMax: 200, prefetchBytesMax });
    await until(() => calls.length > prefetchBytesMax / payloadBytes / 2, { what: 'half of it is being delivered' });
    goOn.resolve();
    let heldMax = 0;
    await until(
      async () => {
        const [{ held, left }] = await scenario.db.query(
          'select count(claimed_by)::integer as held, count(*)::integer as left from postcommit.outbox_queue',
        );
        heldMax = Math.max(heldMax, held);
        return left === 0;
      },
      { what: 'the queue is empty' },
    );
    expect(heldMax).toBeLessThanOrEqual(prefetchBytesMax / payloadBytes);
    expect(new Set(calls).size).toBe(400);
  }),
);

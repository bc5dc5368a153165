import { describe, expect, test } from 'vitest';
import { createOutbox, fromPg, type RouteFunction } from '../../src/index.ts';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import type { EventOutcome } from '../../src/relay/event/outcome.ts';
import { Settler } from '../../src/relay/settle/settler.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';
import { until } from '../support/wait.ts';

const win1252 = { encoding: 'WIN1252' };
const soon = { pollIntervalMs: 50 };
const japanese = '注文に失敗しました';
const escaped = String.raw`\u6ce8\u6587\u306b\u5931\u6557\u3057\u307e\u3057\u305f`;

const many = (count: number) => Array.from({ length: count }, (_, n) => ({ aggregateId: String(n) }));

async function letters(scenario: RelayScenario) {
  return scenario.db.query(
    'select seq::text, reason, blocking, error, done from postcommit.outbox_dead_letters order by 1',
  );
}

describe('an error text that the encoding of the database lacks', () => {
  test(
    'is stored in ASCII, and no other result waits',
    withScenario(async (scenario) => {
      const relay = await scenario.relay('one', {
        ...soon,
        retry: { delaysMs: [1] },
        handlers: {
          scripted: {
            script: ({ seq }) => {
              if (seq === '7') throw new Error(japanese);
              if (seq === '8') throw new Error('größer');
            },
          },
        },
      });
      await scenario.emit(many(200));
      await scenario.drained();
      expect(relay.stats()).toMatchObject({ delivered: 198, failed: 2, deadLettered: 2 });
      const failures = await scenario.db.query(
        'select seq::text, attempt, error from postcommit.outbox_failures where seq = 7 order by 1, 2',
      );
      expect(failures).toEqual([1, 2].map((attempt) => ({ seq: '7', attempt, error: escaped })));
      expect((await letters(scenario)).map(({ seq }) => seq)).toEqual(['7', '8']);
    }, win1252),
  );

  test(
    'does not keep a circuit from opening, nor a failed probe from being noted',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      events.outcomeOf = () => ({ kind: 'unavailable', reason: japanese });
      events.health = async () => {
        if (events.batches.length > 0) throw new Error(`probe: ${japanese}`);
      };
      await scenario.relay('one', {
        ...soon,
        handlers: {},
        destinations: { events: { publisher: events, probeDelayMs: 50, probeDelayMsMax: 100 } },
      });
      await scenario.emit(many(3));
      const errors = new Set<string>();
      await until(
        async () => {
          const [row] = await scenario.db.query('select state, error from postcommit.outbox_destinations');
          if (row.state === 'open') errors.add(row.error);
          return errors.size === 2;
        },
        { what: 'the circuit is open and was probed' },
      );
      expect([...errors]).toEqual([escaped, `probe: ${escaped}`]);
      expect(await scenario.queued()).toBe(0);
    }, win1252),
  );
});

describe('names that cannot be stored', () => {
  test.each(['order-😀'.slice(0, -1), 'a\0b'])('a topic %j is a coded failure of its event alone', async (topic) => {
    await withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const route: RouteFunction = ({ seq }) => [
        { to: 'events' },
        { to: 'events', topic: seq === '3' ? topic : 'two' },
      ];
      await scenario.relay('one', {
        ...soon,
        retry: { delaysMs: [] },
        handlers: {},
        destinations: { events },
        route,
      });
      await scenario.emit(many(20));
      await scenario.drained();
      expect(events.received).toHaveLength(2 * 19);
      expect(await letters(scenario)).toMatchObject([
        { seq: '3', reason: 'exhausted', error: expect.stringMatching(/route\(\) failed.*The topic is/) },
      ]);
    })();
  });

  test.each([
    ['key', { key: '\ud83d' }],
    ['header', { headers: { half: '\ud83d' } }],
    ['exchange', { exchange: '\ud83d' }],
  ])('half a character in the %s of a route as well', async (what, part) => {
    await withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      const relay = scenario.idleRelay('one', {
        retry: { delaysMs: [] },
        handlers: {},
        destinations: { events },
        route: () => ({ to: 'events', ...part }),
      });
      await scenario.emit(many(1));
      expect(await relay.runOnce()).toMatchObject({ deadLettered: 1 });
      expect(await letters(scenario)).toMatchObject([{ error: expect.stringContaining(`The ${what}`) }]);
      expect(events.received).toEqual([]);
    })();
  });

  test(
    'a topic that the encoding lacks is delivered once, though its event fails elsewhere first',
    withScenario(async (scenario) => {
      const events = new ScriptedPublisher();
      let failed = 0;
      events.outcomeOf = ({ topic }) =>
        topic === 'third' && failed++ === 0 ? { kind: 'failed', reason: japanese } : { kind: 'delivered' };
      await scenario.relay('one', {
        ...soon,
        retry: { delaysMs: [1] },
        handlers: {},
        destinations: { events },
        route: () => ['first', japanese, 'third'].map((topic) => ({ to: 'events', topic })),
      });
      await scenario.emit(many(1));
      await scenario.drained();
      expect(events.received.map(({ topic }) => topic).sort()).toEqual(['first', 'third', japanese]);
      expect(await scenario.db.query('select targets from postcommit.outbox_deliveries')).toEqual([
        { targets: ['events:first', `events:${escaped}`, 'events:third'] },
      ]);
    }, win1252),
  );

  test(
    'names of the relay, handlers and destinations keep it from starting',
    withScenario(async (scenario) => {
      const publisher = new ScriptedPublisher();
      for (const options of [
        { name: japanese },
        { handlers: { scripted: { [japanese]: () => {} } } },
        { destinations: { [japanese]: publisher } },
      ]) {
        const relay = scenario.idleRelay('one', options);
        await expect(relay.start()).rejects.toMatchObject({
          code: 'POSTCOMMIT_E_TEXT_NOT_STORABLE',
          message: expect.stringContaining(japanese),
        });
      }
      expect(await scenario.db.query('select from postcommit.outbox_relays')).toEqual([]);
      const relay = await scenario.relay('größe', { handlers: { scripted: { größe: () => {} } } });
      await scenario.emit(many(1));
      await until(() => relay.stats().delivered === 1, { what: 'it is delivered' });
    }, win1252),
  );

  test(
    'a reason to pause is refused, and nothing is paused',
    withScenario(async (scenario) => {
      await scenario.relay('one', { handlers: {}, destinations: { events: new ScriptedPublisher() } });
      const { admin } = createOutbox({ db: fromPg(scenario.db.pool) });
      await expect(admin.pauseDestination('events', { reason: japanese })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_TEXT_NOT_STORABLE',
      });
      expect(await admin.destinations()).toMatchObject([{ name: 'events', state: 'up' }]);
    }, win1252),
  );
});

describe('a result that the database refuses in any form', () => {
  const refuseThirteen = `alter table postcommit.outbox_deliveries add constraint unlucky check (not seqs @> 13::bigint)`;

  test.each(['skip', 'block'] as const)(
    'makes a dead letter of its event, and no other waits (poison: %s)',
    async (poison) => {
      await withScenario(async (scenario) => {
        await scenario.db.query(refuseThirteen);
        const relay = await scenario.relay('one', { ...soon, poison });
        await scenario.emit(many(100));
        await scenario.drained();
        expect(relay.stats()).toMatchObject({ delivered: 99, deadLettered: 1, fenced: 0 });
        expect(await letters(scenario)).toEqual([
          {
            seq: '13',
            reason: 'rejected',
            blocking: poison === 'block',
            done: ['script'],
            error: expect.stringMatching(/It has reached script\. \(23514: .*unlucky/),
          },
        ]);
        expect(await scenario.db.query('select code from postcommit.outbox_failures')).toEqual([
          { code: 'POSTCOMMIT_E_RESULT_REFUSED' },
        ]);

        await scenario.db.query('alter table postcommit.outbox_deliveries drop constraint unlucky');
        await createOutbox({ db: fromPg(scenario.db.pool) }).admin.retry({ all: true });
        await until(() => relay.stats().delivered === 100, { what: 'it is settled' });
        // It had reached its handler before.
        expect(scenario.journal.ends()).toHaveLength(100);
      })();
    },
  );

  test(
    'after a retry: the dead letter is owed to no target, and a retry settles it',
    withScenario(async (scenario) => {
      await scenario.db.query(refuseThirteen.replace('13', '1'));
      const events = new ScriptedPublisher();
      events.outcomeOf = () =>
        events.batches.length > 1 ? { kind: 'delivered' } : { kind: 'failed', reason: 'not yet' };
      const retry = { delaysMs: [10] };
      const relay = await scenario.relay('one', { ...soon, retry, handlers: {}, destinations: { events } });
      await scenario.emit(many(1));
      await until(() => relay.stats().deadLettered === 1, { what: 'its result is refused' });
      expect(await scenario.db.query('select done, owed from postcommit.outbox_dead_letters')).toEqual([
        { done: ['events'], owed: null },
      ]);
      await scenario.db.query('alter table postcommit.outbox_deliveries drop constraint unlucky');
      await createOutbox({ db: fromPg(scenario.db.pool) }).admin.retry({ all: true });
      await until(() => relay.stats().delivered === 1, { what: 'it is settled' });
      expect(events.batches).toHaveLength(2);
    }),
  );

  test(
    'not even as a dead letter: the others are delivered all the same',
    withScenario(async (scenario) => {
      await scenario.db.query(refuseThirteen);
      await scenario.db.query('alter table postcommit.outbox_dead_letters add constraint unluckier check (seq <> 13)');
      const relay = await scenario.relay('one', soon);
      await scenario.emit(many(100));
      await until(() => relay.stats().delivered === 99, { what: 'the others are delivered' });
      await scenario.emit([{ aggregateId: 'later' }]);
      await until(() => relay.stats().delivered === 100, { what: 'later ones are delivered' });
      await scenario.db.query('alter table postcommit.outbox_dead_letters drop constraint unluckier');
      await until(() => relay.stats().deadLettered === 1, { what: 'the dead letter could be written' });
    }),
  );
});

test(
  'the settler stores names that PostgreSQL refuses in ASCII, and writes all in order',
  withScenario(async (scenario) => {
    await scenario.emitLine('a', 5);
    await scenario.db.query('update postcommit.outbox_queue set claimed_by = 7');
    const written: string[] = [];
    const settler = new Settler({
      schema: 'postcommit',
      query: async (text, values) => scenario.db.pool.query({ text, values, rowMode: 'array' }),
      retry: { delaysMs: [0] },
      poison: 'skip',
      logger: { debug() {}, info() {}, warn() {}, error() {} },
      onSettled: ({ event }, fenced, instead) => written.push(`${event.seq} ${fenced} ${instead !== undefined}`),
    });
    const event = (seq: string) => ({ seq, attempts: 0, done: [] as string[] }) as unknown as ClaimedEvent;
    const outcomes: EventOutcome[] = [
      { kind: 'delivered', targets: ['a'] },
      { kind: 'delivered', targets: ['b\ud83d'] },
      { kind: 'unavailable', done: ['c\0'], waitsFor: ['events'] },
      { kind: 'failed', retryAfterMs: 1e300, done: [], errors: [] },
      { kind: 'delivered', targets: ['a'] },
    ];
    settler.useToken('7');
    for (const [index, outcome] of outcomes.entries()) settler.settle(event(String(index + 1)), outcome);
    await settler.drained();
    expect(written).toEqual(['1 false false', '2 false false', '3 false false', '4 false true', '5 false false']);
    expect(await scenario.db.query('select seqs::text, targets from postcommit.outbox_deliveries order by 1')).toEqual([
      { seqs: '{[1,2)}', targets: ['a'] },
      { seqs: '{[2,3)}', targets: [String.raw`b\ud83d`] },
      { seqs: '{[5,6)}', targets: ['a'] },
    ]);
    expect(await scenario.db.query('select seq::text, done from postcommit.outbox_shelf')).toEqual([
      { seq: '3', done: [String.raw`c\u0000`] },
    ]);
    expect(await letters(scenario)).toMatchObject([{ seq: '4', reason: 'rejected' }]);
    expect(await scenario.queued()).toBe(0);
  }),
);

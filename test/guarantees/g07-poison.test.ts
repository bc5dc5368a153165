import { describe, expect, test } from 'vitest';
import { Reject } from '../../src/index.ts';
import { RelayScenario, withScenario } from '../support/relay-scenario.ts';
import { nextEvent, until } from '../support/wait.ts';

const endsOf = (scenario: RelayScenario, key: string) =>
  scenario.journal.read().filter((entry) => entry.phase === 'end' && entry.key === key).length;
const deadLetters = (scenario: RelayScenario) =>
  scenario.db.query(
    `select d.seq, reason, attempts, done, blocking, error, e.aggregate_id
       from postcommit.outbox_dead_letters d left join postcommit.outbox_events e using (seq) order by d.seq`,
  );
const failures = (scenario: RelayScenario) =>
  scenario.db.query(
    'select attempt, target, code, error from postcommit.outbox_failures order by seq, attempt, target',
  );

describe('G7 poison is contained', () => {
  test(
    'skip: the aggregate continues without it',
    withScenario(async (scenario) => {
      await scenario.emitLine('bad', 1, { reject: true });
      await scenario.emitLine('bad', 5);
      await scenario.emitLine('good', 5);
      const relay = await scenario.relay('one', { poison: 'skip' });
      await scenario.drained();
      expect(endsOf(scenario, 'thing:bad')).toBe(5);
      expect(await deadLetters(scenario)).toMatchObject([
        { reason: 'rejected', attempts: 1, blocking: false, error: 'Reject: the script says so', aggregate_id: 'bad' },
      ]);
      expect(await scenario.findings()).toMatchObject({ lost: [], orderViolations: [], overlaps: [] });
      expect(relay.stats()).toMatchObject({ deadLettered: 1, delivered: 10 });
    }),
  );

  test(
    'block: its aggregate waits, all others go on, and a new relay does not forget it',
    withScenario(async (scenario) => {
      await scenario.emitLine('bad', 2);
      await scenario.emitLine('bad', 1, { reject: true });
      await scenario.emitLine('bad', 300);
      const first = await scenario.relay('first', { poison: 'block', batchSizeMax: 50, prefetchMax: 50 });
      const dead = await nextEvent<{ blocking: boolean }>(first, 'deadLettered');
      expect(dead.blocking).toBe(true);
      await scenario.emitLine('good', 50);
      await until(() => endsOf(scenario, 'thing:good') === 50, { what: 'the others are delivered' });
      await first.stop();
      await scenario.relay('second', { poison: 'block' });
      await scenario.emitLine('bad', 5);
      await scenario.emitLine('good', 50);
      await until(() => endsOf(scenario, 'thing:good') === 100, { what: 'the others are delivered' });
      expect(endsOf(scenario, 'thing:bad')).toBe(2);
      await until(async () => (await scenario.queued()) === 305, { what: 'only what waits for it is left' });
      const [held] = await scenario.db.query('select seq, attempts from postcommit.outbox_queue where blocking');
      expect(await deadLetters(scenario)).toMatchObject([
        { seq: held.seq, blocking: true, attempts: 1, reason: 'rejected' },
      ]);
    }),
  );

  test(
    'exhausted: as many attempts as the schedule allows, and the error of each is kept',
    withScenario(async (scenario) => {
      const relay = scenario.idleRelay('one', {
        retry: { delaysMs: [0, 5, 10] },
        handlers: {
          scripted: {
            script: (_event, ctx) => {
              throw new TypeError(`failure number ${ctx.attempt}`);
            },
          },
        },
      });
      const retries: { attempt: number; delayMs: number }[] = [];
      relay.on('failed', ({ attempt, delayMs }) => retries.push({ attempt, delayMs }));
      await scenario.emit([{ aggregateId: 'a' }]);
      const dead = nextEvent(relay, 'deadLettered');
      await relay.start();
      expect(await dead).toMatchObject({
        reason: 'exhausted',
        attempt: 4,
        blocking: false,
        error: 'TypeError: failure number 4',
      });
      expect(retries).toEqual([
        { attempt: 1, delayMs: 0 },
        { attempt: 2, delayMs: 5 },
        { attempt: 3, delayMs: 10 },
      ]);
      expect(await failures(scenario)).toEqual(
        [1, 2, 3, 4].map((attempt) => ({
          attempt,
          target: 'script',
          code: 'POSTCOMMIT_E_HANDLER_FAILED',
          error: `TypeError: failure number ${attempt}`,
        })),
      );
      expect(await deadLetters(scenario)).toMatchObject([{ reason: 'exhausted', attempts: 4 }]);
      const [status] = await scenario.db.query('select status, retry_count, last_error from postcommit.outbox_status');
      expect(status).toMatchObject({ status: 'FAILED', last_error: 'TypeError: failure number 4' });
    }),
  );

  test(
    'Reject by one of several handlers: the others are not called again, and what they did is kept',
    withScenario(async (scenario) => {
      const calls: string[] = [];
      await scenario.emit([{ aggregateId: 'a' }]);
      const relay = scenario.idleRelay('one', {
        handlers: {
          scripted: {
            fine: () => void calls.push('fine'),
            picky: () => {
              calls.push('picky');
              throw new Reject('not for me');
            },
            broken: () => {
              calls.push('broken');
              throw new Error('later perhaps');
            },
          },
        },
      });
      expect(await relay.runOnce()).toMatchObject({ deadLettered: 1, delivered: 0, failed: 0 });
      expect(calls).toEqual(['fine', 'picky', 'broken']);
      expect(await deadLetters(scenario)).toMatchObject([{ reason: 'rejected', attempts: 1, done: ['fine'] }]);
      expect(await failures(scenario)).toMatchObject([
        { target: 'broken', error: 'later perhaps' },
        { target: 'picky', error: 'Reject: not for me' },
      ]);
    }),
  );

  test(
    'an event that was deleted from the log is a dead letter, and its aggregate continues',
    withScenario(async (scenario) => {
      await scenario.emitLine('a', 3);
      await scenario.db.query('delete from postcommit.outbox_events where seq = 1');
      await scenario.relay('one');
      await scenario.drained();
      expect(endsOf(scenario, 'thing:a')).toBe(2);
      expect(await deadLetters(scenario)).toMatchObject([{ seq: '1', reason: 'rejected' }]);
    }),
  );
});

describe('G7 no handler for a type', () => {
  test(
    'retry: it waits for a relay that has one',
    withScenario(async (scenario) => {
      await scenario.emit([{ aggregateId: 'a' }]);
      const without = await scenario.relay('without', {
        handlers: { other: { ignore: () => {} } },
        retry: { delaysMs: Array(500).fill(20) },
      });
      const told = await nextEvent(without, 'failed');
      expect(told).toMatchObject({ eventType: 'scripted', target: null });
      expect((await failures(scenario))[0]).toMatchObject({
        attempt: 1,
        target: null,
        code: 'POSTCOMMIT_E_NO_HANDLER',
      });
      await without.stop();
      await scenario.relay('with');
      await scenario.drained();
      expect(endsOf(scenario, 'thing:a')).toBe(1);
    }),
  );

  test(
    'fail: it is a dead letter at once',
    withScenario(async (scenario) => {
      await scenario.emit([{ aggregateId: 'a' }]);
      await scenario.relay('without', { handlers: { other: { x: () => {} } }, noHandler: 'fail' });
      await scenario.drained();
      expect(await deadLetters(scenario)).toMatchObject([{ reason: 'no_handler', attempts: 1 }]);
      const [failure] = await failures(scenario);
      expect(failure.error).toContain('No handler is registered');
      expect(failure.error).toContain('scripted');
    }),
  );
});

describe('G7 whatever a handler throws is recorded, readable and bounded', () => {
  const hostile = {
    toString() {
      throw new Error('no text for you');
    },
    toJSON() {
      throw new Error('no JSON either');
    },
  };
  const trap = new Proxy(
    {},
    {
      getPrototypeOf() {
        throw new Error('what am I?');
      },
    },
  );
  const loop: { self?: object } = {};
  loop.self = loop;
  const thrown: [string, unknown, RegExp][] = [
    ['a string', 'just a string', /^just a string$/],
    ['an empty string', '', /^no message$/],
    ['undefined', undefined, /^thrown value: undefined$/],
    ['null', null, /^thrown value: null$/],
    ['a number', 42, /^thrown value: 42$/],
    ['a bigint', 10n, /^thrown value: 10$/],
    ['a symbol', Symbol('sign'), /^thrown value: Symbol\(sign\)$/],
    ['an object', { code: 7 }, /^thrown value: \{"code":7\}$/],
    ['an object that refers to itself', loop, /cannot be converted to text/],
    ['an object that throws when it is looked at', hostile, /cannot be converted to text/],
    ['an object that has no prototype to ask for', trap, /cannot be converted to text/],
    ['an error without a message', new Error(), /^no message$/],
    ['an error whose message is not a string', Object.assign(new Error(), { message: 42 }), /^42$/],
    ['an error whose name is not a string', Object.assign(new Error('m'), { name: 7 }), /^7: m$/],
    [
      'an error with a cause',
      new Error('outer', { cause: new RangeError('inner') }),
      /^outer \(cause: RangeError: inner\)$/,
    ],
    ['NUL', new Error('a\0b'), /^a\uFFFDb$/],
    ['half a character', new Error('a\uD800b'), /^a\uFFFDb$/],
    ['a megabyte', new Error('x'.repeat(1_000_000)), /^x{2000}\.{3}$/],
    ['a frozen error', Object.freeze(new Error('cold')), /^cold$/],
  ];

  test(
    'and none of it disturbs the others',
    withScenario(async (scenario) => {
      await scenario.emit(thrown.map((_, n) => ({ aggregateId: String(n), payload: n })));
      const relay = scenario.idleRelay('one', {
        retry: { delaysMs: [] },
        handlers: {
          scripted: {
            script: (event) => {
              throw thrown[event.payload]?.[1];
            },
          },
        },
      });
      expect(await relay.runOnce()).toMatchObject({ deadLettered: thrown.length });
      const letters = await deadLetters(scenario);
      for (const [n, [name, , text]] of thrown.entries()) expect(letters[n].error, name).toMatch(text);
    }),
  );

  test(
    'thrown later, from a promise, just the same',
    withScenario(async (scenario) => {
      await scenario.emit(thrown.map((_, n) => ({ aggregateId: String(n), payload: n })));
      const relay = scenario.idleRelay('one', {
        retry: { delaysMs: [] },
        handlers: { scripted: { script: (event) => Promise.reject(thrown[event.payload]?.[1]) } },
      });
      expect(await relay.runOnce()).toMatchObject({ deadLettered: thrown.length });
      const letters = await deadLetters(scenario);
      for (const [n, [name, , text]] of thrown.entries()) expect(letters[n].error, name).toMatch(text);
    }),
  );

  test.each([
    ['created_at', `'infinity'`],
    ['created_at', `'-infinity'`],
    ['created_at', `'10000-01-01'`],
    ['aggregate_id', `repeat('x', 1001)`],
    ['event_type', `repeat('x', 1001)`],
    ['ordering_key', `repeat('x', 1001)`],
    ['headers', `jsonb_build_object('x', repeat('x', 65536))`],
    ['headers', `('{"x": [' || rtrim(repeat('1e131071,', 9000), ',') || ']}')::jsonb`],
  ])('%s of an INSERT cannot be %s, which would make every claim fail', async (column, value) => {
    const scenario = await RelayScenario.create();
    try {
      const columns = {
        aggregate_type: `'a'`,
        aggregate_id: `'1'`,
        event_type: `'t'`,
        payload: `'1'`,
        [column]: value,
      };
      const inserted = scenario.db.query(
        `insert into postcommit.outbox_events (${Object.keys(columns)}) values (${Object.values(columns)})`,
      );
      // Refused by a constraint, or because the text of it cannot even be made.
      await expect(inserted).rejects.toMatchObject({ code: expect.stringMatching(/^(?:23514|54000|XX000)$/) });
    } finally {
      await scenario.close();
    }
  });

  test(
    'a payload that is 2 KB as stored and over a gigabyte as text becomes a dead letter, and nothing waits for it',
    withScenario(async (scenario) => {
      await scenario.emitLine('good', 20);
      await scenario.db.query(
        `insert into postcommit.outbox_events (aggregate_type, aggregate_id, event_type, payload)
         select 'thing', 'bad', 'scripted', ('[' || rtrim(repeat('1e131071,', 8300), ',') || ']')::jsonb`,
      );
      await scenario.emitLine('good', 20);
      await scenario.relay('one');
      await scenario.drained();
      expect(endsOf(scenario, 'thing:good')).toBe(40);
      expect(await deadLetters(scenario)).toMatchObject([{ aggregate_id: 'bad', reason: 'rejected' }]);
    }),
  );

  test(
    'an event whose bytes have no equivalent in UTF-8 becomes a dead letter, and nothing waits for it',
    withScenario(
      async (scenario) => {
        await scenario.emitLine('good', 20);
        for (const column of ['aggregate_id', 'payload']) {
          const columns = {
            aggregate_type: `'thing'`,
            aggregate_id: `'bad'`,
            event_type: `'scripted'`,
            payload: `'1'`,
          };
          const text = `convert_from('\\x81', 'WIN1252')`;
          const values = { ...columns, [column]: column === 'payload' ? `to_jsonb(${text})` : text };
          await scenario.db.query(
            `insert into postcommit.outbox_events (${Object.keys(values)}) values (${Object.values(values)})`,
          );
        }
        await scenario.emitLine('good', 20);
        await scenario.relay('one');
        await scenario.drained();
        expect(endsOf(scenario, 'thing:good')).toBe(40);
        const letters = await scenario.db.query(
          'select seq, reason, error from postcommit.outbox_dead_letters order by seq',
        );
        expect(letters).toMatchObject(['21', '22'].map((seq) => ({ seq, reason: 'rejected' })));
      },
      { encoding: 'WIN1252' },
    ),
  );
});

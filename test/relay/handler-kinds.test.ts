import { describe, expect, test } from 'vitest';
import { resolveHandlers } from '../../src/relay/deliver/handler-options.ts';
import type { Handler, Handlers } from '../../src/relay/deliver/handlers.ts';
import { defaultRetry } from '../../src/relay/event/retry-policy.ts';
import { type RelayScenario, withScenario } from '../support/relay-scenario.ts';

const soon = { retry: { delaysMs: [0, 0, 0] }, pollIntervalMs: 100 };
const later = { retry: { delaysMs: [300] }, pollIntervalMs: 100 };

test(
  'handlers may be synchronous, asynchronous, or anything in between',
  withScenario(async (scenario) => {
    const kinds: [name: string, worksAtOnce: boolean, Handler][] = [
      ['returns nothing', true, () => {}],
      ['returns a value', true, () => 42],
      ['returns null', true, () => null],
      ['async', true, async () => {}],
      // biome-ignore lint/suspicious/noThenProperty: this is what is tested.
      ['thenable', true, () => ({ then: (done: () => void) => setTimeout(done, 1) })],
      [
        'thenable that calls back twice',
        true,
        // biome-ignore lint/suspicious/noThenProperty: this is what is tested.
        () => ({ then: (done: () => void, failed: (error: Error) => void) => [done(), failed(new Error('no'))] }),
      ],
      [
        'throws',
        false,
        once(() => {
          throw new Error('sync');
        }),
      ],
      ['rejects', false, once(() => Promise.reject(new Error('async')))],
      [
        'has a then that throws',
        false,
        once(() => ({
          // biome-ignore lint/suspicious/noThenProperty: this is what is tested.
          get then() {
            throw new Error('then');
          },
        })),
      ],
    ];
    const handlers: Handlers = Object.fromEntries(kinds.map(([name, , handler]) => [name, { handler }]));
    const relay = await scenario.relay('one', { ...soon, handlers });
    await scenario.emit(kinds.map(([type]) => ({ type, aggregateId: type })));
    await scenario.drained();
    const retried = kinds.filter(([, worksAtOnce]) => !worksAtOnce);
    expect(relay.stats()).toMatchObject({ delivered: kinds.length, failed: retried.length, deadLettered: 0 });
  }),
);

/** At the first attempt only. */
function once(work: () => unknown): Handler {
  return (_event, { attempt }) => (attempt === 1 ? work() : undefined);
}

describe('an event whose type has no handler', () => {
  const failures = (scenario: RelayScenario) =>
    scenario.db.query('select attempt, target, code, error from postcommit.outbox_failures');

  test(
    'waits for one with noHandler: retry',
    withScenario(async (scenario) => {
      await scenario.emit([{ type: 'order.paid', aggregateId: 'a' }, { aggregateId: 'b' }]);
      const counts = await scenario.idleRelay('old', { ...later, noHandler: 'retry' }).runOnce();
      expect(counts).toEqual({ delivered: 1, failed: 1, deadLettered: 0, complete: true });
      const code = 'POSTCOMMIT_E_NO_HANDLER';
      expect(await failures(scenario)).toEqual([
        { attempt: 1, target: null, code, error: expect.stringContaining('order.paid') },
      ]);
      const attempts: number[] = [];
      const mail: Handler = (_event, { attempt }) => void attempts.push(attempt);
      await scenario.relay('new', { ...later, handlers: { 'order.paid': { mail } } });
      await scenario.drained();
      expect(attempts).toEqual([2]);
    }),
  );

  test(
    'is a dead letter once its attempts are used up',
    withScenario(async (scenario) => {
      await scenario.emit([{ type: 'order.paid', aggregateId: 'a' }]);
      const counts = await scenario
        .idleRelay('one', { retry: { delaysMs: [0] }, handlers: { other: { ignore: () => {} } } })
        .runOnce();
      expect(counts).toEqual({ delivered: 0, failed: 1, deadLettered: 1, complete: true });
      const [letter] = await scenario.db.query('select reason, attempts from postcommit.outbox_dead_letters');
      expect(letter).toEqual({ reason: 'exhausted', attempts: 2 });
    }),
  );

  test(
    'is a dead letter at once with noHandler: fail',
    withScenario(async (scenario) => {
      await scenario.emit([{ type: 'order.paid', aggregateId: 'a' }]);
      const handlers = { 'order.paid': {}, other: { ignore: () => {} } };
      const counts = await scenario.idleRelay('one', { ...soon, noHandler: 'fail', handlers }).runOnce();
      expect(counts).toEqual({ delivered: 0, failed: 0, deadLettered: 1, complete: true });
      const [letter] = await scenario.db.query('select reason, attempts, error from postcommit.outbox_dead_letters');
      expect(letter).toEqual({ reason: 'no_handler', attempts: 1, error: expect.stringContaining('order.paid') });
      expect(await failures(scenario)).toMatchObject([{ attempt: 1, code: 'POSTCOMMIT_E_NO_HANDLER' }]);
    }),
  );
});

const defaults = { deliverTimeoutMs: 30_000, retry: defaultRetry };

describe('handlers that cannot be meant are refused', () => {
  const refused: [string, unknown][] = [
    ['a function', () => {}],
    ['a list', [() => {}]],
    ['a text', 'handlers.ts'],
    ['a Map', new Map([['order.paid', { mail: () => {} }]])],
    ['a function for a type: it has no name', { 'order.paid': () => {} }],
    ['a list for a type: its names would change with the order', { 'order.paid': [() => {}] }],
    ['a Map for a type', { 'order.paid': new Map([['mail', () => {}]]) }],
    ['null for a type', { 'order.paid': null }],
    ['a text for a type', { 'order.paid': 'mail' }],
    ['a handler that is not a function', { 'order.paid': { mail: 'send' } }],
    ['a handler that is undefined', { 'order.paid': { mail: undefined } }],
    ['an object without a handler', { 'order.paid': { mail: {} } }],
    ['an object whose handler is not a function', { 'order.paid': { mail: { handle: 'send' } } }],
    ['a list as a handler', { 'order.paid': { mail: [() => {}] } }],
    ...[0, -1, 1.5, Number.NaN, '5', null].map((timeoutMs): [string, unknown] => [
      `a time limit of ${timeoutMs}`,
      { 'order.paid': { mail: { handle: () => {}, timeoutMs } } },
    ]),
    ['a time limit of more than a day', { 'order.paid': { mail: { handle: () => {}, timeoutMs: 86_400_001 } } }],
    ...[0, -1, 1.5, 10_001, Number.NaN, '5', null].map((inFlightMax): [string, unknown] => [
      `${inFlightMax} calls at once`,
      { 'order.paid': { mail: { handle: () => {}, inFlightMax } } },
    ]),
    ...[0, -1, 1_000_001, Number.NaN, Number.POSITIVE_INFINITY, '5', null].map((rateMax): [string, unknown] => [
      `${rateMax} calls a second`,
      { 'order.paid': { mail: { handle: () => {}, rateMax } } },
    ]),
    ['a retry policy that is none', { 'order.paid': { mail: { handle: () => {}, retry: 5 } } }],
    ['no attempts', { 'order.paid': { mail: { handle: () => {}, retry: { attemptsMax: 0 } } } }],
    ['a handler without a name', { 'order.paid': { '': () => {} } }],
    ['a name that PostgreSQL cannot store: NUL', { 'order.paid': { 'ma\0il': () => {} } }],
    ['a name that PostgreSQL cannot store: a lone surrogate', { 'order.paid': { 'ma\ud800il': () => {} } }],
  ];
  test.each(refused)('%s', (_name, handlers) => {
    const expected = {
      name: 'PostcommitError',
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('handlers'),
    };
    expect(() => resolveHandlers(handlers as Handlers, defaults)).toThrow(expect.objectContaining(expected));
  });

  test('a misspelt option of a handler is refused with a suggestion', () => {
    const handlers = { 'order.paid': { mail: { handle: () => {}, timeoutMS: 5 } } };
    expect(() => resolveHandlers(handlers as Handlers, defaults)).toThrow(
      expect.objectContaining({
        code: 'POSTCOMMIT_E_BAD_OPTION',
        message: expect.stringContaining(
          "handlers['order.paid']['mail'] has no option timeoutMS. Did you mean timeoutMs?",
        ),
      }),
    );
  });

  test('but names may be anything else, also what JavaScript has a meaning for', () => {
    const handler = () => {};
    const handlers = JSON.parse('{"__proto__": {"constructor": 0, "déjà vu 🙂": 0, "__proto__": 0}}', (_key, value) =>
      value === 0 ? handler : value,
    );
    const names = ['constructor', 'déjà vu 🙂', '__proto__'];
    const resolved = resolveHandlers(handlers, defaults);
    const expected = names.map((name) => expect.objectContaining({ name, handle: handler }));
    expect(resolved.of('__proto__')).toEqual(expected);
    expect(resolved.of('constructor')).toEqual([]);
  });
});

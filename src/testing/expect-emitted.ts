import { AssertionError } from 'node:assert';
import { PostcommitError } from '../errors.ts';
import { quantity, shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';
import { findDifferences } from './differences.ts';
import type { EmittedEvent, EmittedWhere } from './emitted-events.ts';
import { emittedEvents } from './emitted-events.ts';

/** What an event should be. What is left out may be anything. */
export interface ExpectedEvent {
  type: string;
  aggregate?: readonly [type: string, id: string | number | bigint];
  /**
   * Objects may have more fields than given here; arrays have exactly these elements. A function in any place is called with the value
   * and returns whether it is right; `expect.any(String)` and other matchers of vitest and jest work too.
   */
  payload?: unknown;
  /** Compared as `payload` is. */
  headers?: unknown;
  id?: string;
  /** `null` for no order. */
  key?: string | null;
  queue?: string;
  schemaVersion?: number;
  attemptsMax?: number;
}

export interface ExpectEmittedOptions {
  /** Whether further events may be between, before and behind the expected ones. Default `false`. */
  allowOthers?: boolean;
}

/** Complete by its type. */
const expectedNames: Record<keyof ExpectedEvent, true> = {
  type: true,
  aggregate: true,
  payload: true,
  headers: true,
  id: true,
  key: true,
  queue: true,
  schemaVersion: true,
  attemptsMax: true,
};

/** One line of the comparison: an expected event, an emitted one, or both. */
interface Pair {
  expected?: ExpectedEvent;
  emitted?: EmittedEvent;
  differences: string[];
}

/**
 * Fails with an `AssertionError` unless these events were emitted, in this order, and no others: by the open transaction `where.tx`, or
 * committed. Its message lists what is different, missing and unexpected. An empty list expects that nothing was emitted. Returns the
 * events that were expected.
 *
 * @example
 * import { expectEmitted } from 'postcommit/testing';
 *
 * await client.query('begin');
 * await outbox.emit(client, { type: 'order.created', aggregate: ['order', order.id], payload: order });
 * await expectEmitted({ db: fromPg(pool), tx: client }, [
 *   { type: 'order.created', aggregate: ['order', order.id], payload: { total: order.total } },
 * ]);
 * await client.query('rollback');
 */
export async function expectEmitted<Tx>(
  where: EmittedWhere<Tx>,
  expected: readonly ExpectedEvent[],
  options: ExpectEmittedOptions = {},
): Promise<EmittedEvent[]> {
  checkExpected(expected);
  const unknown = unknownOption(options, ['allowOthers']);
  if (unknown !== undefined) throw refuse(`expectEmitted(): ${unknown}`);
  const emitted = await emittedEvents(where);
  const pairs = pairUp(expected, emitted);
  const isWrong = (pair: Pair) =>
    pair.expected === undefined ? !options.allowOthers : pair.emitted === undefined || pair.differences.length > 0;
  if (!pairs.some(isWrong)) return pairs.flatMap((pair) => (pair.expected && pair.emitted ? [pair.emitted] : []));
  const source = where.tx === undefined ? 'The committed events' : 'The events of the transaction';
  throw new AssertionError({
    message: [
      `${source} are not the expected ones: expected ${quantity(expected.length, 'event')}, found ${quantity(emitted.length, 'event')}.`,
      ...pairs.flatMap((pair) => describe(pair, options.allowOthers === true)),
    ].join('\n'),
    actual: emitted.map((event) => onlyCompared(event, expected)),
    expected,
  });
}

/**
 * In the order of the log. An expected event belongs to the first one that fits behind the previous pair; if none fits, to the first of
 * its type, which then has differences.
 */
function pairUp(expected: readonly ExpectedEvent[], emitted: readonly EmittedEvent[]): Pair[] {
  const compared = (want: ExpectedEvent, event: EmittedEvent): Pair => ({
    expected: want,
    emitted: event,
    differences: compare(want, event),
  });
  const pairs: Pair[] = [];
  let next = 0;
  const skipTo = (index: number) => {
    for (const event of emitted.slice(next, index)) pairs.push({ emitted: event, differences: [] });
    next = index + 1;
  };
  for (const want of expected) {
    const rest = emitted.slice(next);
    const fitting = rest.findIndex((event) => compare(want, event).length === 0);
    const found = fitting >= 0 ? fitting : rest.findIndex(({ type }) => type === want.type);
    if (found < 0) {
      const earlier = emitted.findIndex((event) => compare(want, event).length === 0);
      const note =
        earlier < 0
          ? []
          : [`such an event is number ${earlier + 1} in the log: the order differs, or it is needed twice`];
      pairs.push({ expected: want, differences: note });
      continue;
    }
    const index = next + found;
    skipTo(index);
    pairs.push(compared(want, emitted[index] as EmittedEvent));
  }
  skipTo(emitted.length);
  return pairs;
}

function compare(expected: ExpectedEvent, emitted: EmittedEvent): string[] {
  return Object.entries(expected).flatMap(([name, value]) =>
    value === undefined
      ? []
      : findDifferences(name, name === 'aggregate' ? value.map(String) : value, fieldOf(emitted, name)),
  );
}

function fieldOf(event: EmittedEvent, name: string): unknown {
  return event[name as keyof ExpectedEvent];
}

function describe({ expected, emitted, differences }: Pair, allowOthers: boolean): string[] {
  const details = differences.map((line) => `      ${line}`);
  if (expected === undefined) {
    const line = `${nameOf(emitted as EmittedEvent)} ${shown(emitted?.payload)}`;
    return [`  ${allowOthers ? 'other     ' : 'unexpected'} ${line}`];
  }
  if (emitted === undefined) return [`  missing    ${nameOf(expected)} ${shown(expected.payload)}`, ...details];
  return [`  ${differences.length === 0 ? 'ok        ' : 'different '} ${nameOf(emitted)}`, ...details];
}

function nameOf({ type, aggregate }: Pick<ExpectedEvent, 'type' | 'aggregate'>): string {
  return aggregate === undefined ? type : `${type} of ${aggregate.map(String).join(' ')}`;
}

/** For the difference that test runners print. */
function onlyCompared(event: EmittedEvent, expected: readonly ExpectedEvent[]): Record<string, unknown> {
  const names = new Set(['type', 'aggregate', 'payload', ...expected.flatMap((each) => Object.keys(each))]);
  return Object.fromEntries([...names].map((name) => [name, fieldOf(event, name)]));
}

function checkExpected(expected: readonly ExpectedEvent[]): void {
  if (!Array.isArray(expected)) throw refuse('expectEmitted() takes a list of expected events; it may be empty.');
  for (const event of expected) {
    if (typeof event?.type !== 'string') throw refuse(`An expected event needs a type. Got ${shown(event)}.`);
    // A misspelt payload would match anything.
    const unknown = unknownOption(event, Object.keys(expectedNames));
    if (unknown !== undefined) throw refuse(`An expected event: ${unknown}`);
  }
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}

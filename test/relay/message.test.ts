import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { toMessage } from '../../src/relay/deliver/destinations/message.ts';
import { seededRandom } from '../support/random.ts';
import { deliveredEvent } from '../wire/event.ts';

type Pairs = readonly (readonly [name: string, value: string])[];

/** The headers of the message, as pairs. `fromEntries` is how an object gets a property called `__proto__`. */
function merged(ofEvent: Pairs, ofRoute: Pairs, ofSerializer: Pairs): Pairs {
  const event = deliveredEvent({ headersJson: JSON.stringify(Object.fromEntries(ofEvent)) });
  const headers = Object.fromEntries(ofRoute);
  const leg = { target: 'd', to: 'd', topic: 't', key: null, headers, exchange: undefined };
  const serialized = { body: '{}', contentType: 'application/json', headers: Object.fromEntries(ofSerializer) };
  return Object.entries(toMessage(event, leg, serialized).headers);
}

const sorted = (pairs: Pairs) => [...pairs].sort(([a], [b]) => (a < b ? -1 : 1));

describe('the headers of a message', () => {
  test.each(['__proto__', 'constructor', 'toString', 'hasOwnProperty', '__defineGetter__'])('%s arrives', (name) => {
    expect(merged([[name, 'event']], [], [])).toEqual([[name, 'event']]);
    expect(merged([], [[name, 'route']], [])).toEqual([[name, 'route']]);
    expect(merged([], [], [[name, 'serializer']])).toEqual([[name, 'serializer']]);
  });

  test('of names that differ only in case the later source counts', () => {
    expect(merged([['X-Tenant', 'event']], [['x-tenant', 'route']], [])).toEqual([['x-tenant', 'route']]);
    expect(merged([['x-tenant', 'event']], [['X-Tenant', 'route']], [['X-TENANT', 'format']])).toEqual([
      ['X-TENANT', 'format'],
    ]);
    expect(merged([['__Proto__', 'event']], [['__proto__', 'route']], [])).toEqual([['__proto__', 'route']]);
  });

  test('that plain SQL inserted as something else than text arrive as they are stored', () => {
    const headersJson =
      '{"n": 12345678901234567890, "big": 1e400, "text": "a\\"b:{,", "none": null, "yes": true, "q\\"{": -1.50, "__proto__": 3, ' +
      '"deep": {"a": [1.0, "]}", {}], "b": {"c": 12345678901234567890}}, "empty": {}, "list": [], "nothing": "", "end": 0.10}';
    const leg = { target: 'd', to: 'd', topic: 't', key: null, headers: undefined, exchange: undefined };
    const { headers } = toMessage(deliveredEvent({ headersJson }), leg, {
      body: '{}',
      contentType: 'application/json',
    });
    expect(Object.entries(headers)).toEqual([
      ['n', '12345678901234567890'],
      ['big', '1e400'],
      ['text', 'a"b:{,'],
      ['yes', 'true'],
      ['q"{', '-1.50'],
      ['__proto__', '3'],
      ['deep', '{"a": [1.0, "]}", {}], "b": {"c": 12345678901234567890}}'],
      ['empty', '{}'],
      ['list', '[]'],
      ['nothing', ''],
      ['end', '0.10'],
    ]);
  });

  test("the format's come first, so that a broker with little room has them whatever the event has", () => {
    const names = merged([['z', '1']], [['y', '2']], [['event-type', '3']]).map(([name]) => name);
    expect(names).toEqual(['event-type', 'z', 'y']);
  });

  test('any names: each header is there once, with the value of the last source that has it', () => {
    const { seed } = seededRandom();
    const name = fc.oneof(
      fc.constantFrom('__proto__', '__PROTO__', 'constructor', 'toString', 'TOSTRING', 'valueOf', 'a', 'A', '0'),
      fc.string({ unit: 'binary', maxLength: 6 }),
    );
    const pairs = fc.uniqueArray(fc.tuple(name, fc.string()), { selector: ([own]) => own, maxLength: 8 });
    const property = fc.property(pairs, pairs, pairs, (ofEvent, ofRoute, ofSerializer) => {
      const ofOthers = [...Object.entries(Object.fromEntries(ofEvent)), ...Object.entries(Object.fromEntries(ofRoute))];
      const expected = new Map<string, readonly [string, string]>();
      for (const pair of ofOthers) {
        if (pair[0].toLowerCase() !== 'content-type') expected.set(pair[0].toLowerCase(), pair);
      }
      for (const pair of Object.entries(Object.fromEntries(ofSerializer))) expected.set(pair[0].toLowerCase(), pair);
      expect(sorted(merged(ofEvent, ofRoute, ofSerializer))).toEqual(sorted([...expected.values()]));
    });
    fc.assert(property, { seed, numRuns: 500 });
  });
});

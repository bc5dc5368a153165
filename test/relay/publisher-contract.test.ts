import { describe, expect, test } from 'vitest';
import { createRelay, type Publisher } from '../../src/index.ts';
import { nats } from '../../src/publishers/nats.ts';
import { rabbitmq } from '../../src/publishers/rabbitmq.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { resolveDestinations } from '../../src/relay/deliver/destinations/destination-options.ts';
import { ScriptedPublisher } from '../support/scripted-publisher.ts';

const connectionString = 'postgres://127.0.0.1:5432/orders';

function refusal(publisher: unknown): unknown {
  try {
    createRelay({ connectionString, destinations: { orders: publisher as Publisher } });
    return undefined;
  } catch (error) {
    return error;
  }
}

/** A complete publisher but for these members. */
function publisher(parts: object): object {
  const { kind, capabilities } = new ScriptedPublisher();
  const work = async () => {};
  return { kind, capabilities, connect: work, publish: work, health: work, close: work, ...parts };
}

const capable = (parts: object) => publisher({ capabilities: { ...new ScriptedPublisher().capabilities, ...parts } });

const numbers = [undefined, null, 0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60, '5', 5n];
const flags = [undefined, null, 0, 'false'];

const broken: [member: string, publisher: object][] = [
  ...['connect', 'publish', 'health', 'close'].flatMap((name): [string, object][] => [
    [`${name}()`, publisher({ [name]: undefined })],
    [`${name}()`, publisher({ [name]: true })],
  ]),
  ...[undefined, '', 7].map((kind): [string, object] => ['kind', publisher({ kind })]),
  ...[undefined, null, 'large'].map((each): [string, object] => ['capabilities', publisher({ capabilities: each })]),
  ...['batchSizeMax', 'batchBytesMax', 'batchesInFlightMax'].flatMap((name) =>
    numbers.map((value): [string, object] => [`capabilities.${name}`, capable({ [name]: value })]),
  ),
  ...['ordered', 'keyRuns', 'deduplicates'].flatMap((name) =>
    flags.map((value): [string, object] => [`capabilities.${name}`, capable({ [name]: value })]),
  ),
  ...numbers.slice(1).map((value): [string, object] => ['capabilities.answerMsMax', capable({ answerMsMax: value })]),
  ...[null, {}, { of: 'host' }].map((parts): [string, object] => ['parts.of()', publisher({ parts })]),
  ...numbers.map((inFlightMax): [string, object] => [
    'parts.inFlightMax',
    publisher({ parts: { of: () => undefined, inFlightMax } }),
  ]),
  ...[undefined, '', 5, 'with space', '1st'].map((value): [string, object] => [
    'capabilities.cloudEventsPrefix',
    capable({ cloudEventsPrefix: value }),
  ]),
];

describe('createRelay refuses a publisher that breaks its contract', () => {
  test('naming the destination, the member, and what is expected of it', () => {
    for (const [member, given] of broken) {
      for (const destination of [given, { publisher: given }]) {
        const error = refusal(destination) as Error & { code: string };
        expect(error, member).toMatchObject({ name: 'PostcommitError', code: 'POSTCOMMIT_E_BAD_OPTION' });
        expect(error.message).toMatch(`destinations['orders'] breaks its contract: ${member} must be `);
        expect(error.message).toMatch(/ Got .+\.$/);
      }
    }
  });

  test('and takes one that keeps it', () => {
    for (const good of [publisher({}), new ScriptedPublisher(), { publisher: publisher({}), drainRateMax: 5 }]) {
      expect(refusal(good)).toBeUndefined();
    }
  });

  test('an object that is not a publisher has an error of its own', () => {
    for (const none of [undefined, null, 'kafka', {}, { publisher: {} }, { publisher: 'kafka' }, { drainRateMax: 5 }]) {
      expect(refusal(none)).toMatchObject({
        message: expect.stringContaining("destinations['orders'] must be a publisher"),
      });
    }
  });
});

describe('the time limits of a publisher and of its destination', () => {
  const all: [string, Publisher, answerMsMax: number][] = [
    ['webhook', webhook({ url: 'http://127.0.0.1/', secret: null }), 20_000],
    ['webhook of 60 s', webhook({ secret: null, timeoutMs: 60_000 }), 120_000],
    ['nats', nats({ servers: '127.0.0.1' }), 10_000],
    ['rabbitmq', rabbitmq({ url: 'amqp://127.0.0.1' }), 10_000],
  ];

  test.each(all)('%s: those of the publisher end first by default', (_, publisher, answerMsMax) => {
    expect(publisher.capabilities.answerMsMax).toBe(answerMsMax);
    const [resolved] = resolveDestinations({ orders: publisher }, new Set());
    expect(resolved?.publishTimeoutMs).toBe(answerMsMax + 2_000);
  });

  test.each(all)('%s: a limit of the destination that is not longer is refused', (_, publisher, answerMsMax) => {
    const error = refusal({ publisher, publishTimeoutMs: answerMsMax });
    expect(error).toMatchObject({ code: 'POSTCOMMIT_E_BAD_OPTION' });
    expect((error as Error).message).toContain(`publishTimeoutMs (${answerMsMax}) must be above the ${answerMsMax} ms`);
    expect(refusal({ publisher, publishTimeoutMs: answerMsMax + 1 })).toBeUndefined();
  });

  test('without limits of the publisher it is 10 s, or whatever is given', () => {
    const publisher = new ScriptedPublisher();
    expect(resolveDestinations({ orders: publisher }, new Set())[0]?.publishTimeoutMs).toBe(10_000);
    expect(resolveDestinations({ orders: { publisher, publishTimeoutMs: 5 } }, new Set())[0]?.publishTimeoutMs).toBe(5);
  });
});

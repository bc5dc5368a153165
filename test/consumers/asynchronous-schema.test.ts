import { randomBytes, randomUUID } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { defineEvents } from '../../src/index.ts';
import { consumeWebhook, signWebhook, type WebhookConsumerOptions } from '../../src/publishers/webhook.ts';
import { deferred, within } from '../support/wait.ts';
import { envelopeOf, silent } from './consumer-suite.ts';

type Validation = Promise<StandardSchemaV1.Result<unknown>>;

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const never: Validation = new Promise(() => {});

/** A consumer with a schema whose results come when the test says so. */
function consumer(validate: (payload: unknown) => Validation, more: Partial<WebhookConsumerOptions<unknown>> = {}) {
  const validating = deferred();
  const schema: StandardSchemaV1 = {
    '~standard': {
      version: 1,
      vendor: 'test',
      validate: (payload) => {
        validating.resolve();
        return validate(payload);
      },
    },
  };
  let calls = 0;
  const orders = consumeWebhook({
    secret,
    logger: silent,
    events: defineEvents({ 'order.created': { schema } }),
    handle: () => void calls++,
    ...more,
  } as WebhookConsumerOptions<unknown>);
  const send = (n = 1) => {
    const { body, headers } = envelopeOf('a', n, randomUUID());
    const eventId = JSON.parse(body as string).eventId as string;
    const signature = signWebhook({ eventId, body: body as string, secret });
    const request = { method: 'POST', body: body as string, headers: { ...headers, ...signature } };
    return orders.handleRequest(new Request('http://x/', request));
  };
  return { orders, send, validating: within(validating.promise, { what: 'the schema is called' }), calls: () => calls };
}

describe('a consumer whose schema does not settle', () => {
  test('stops after stopTimeoutMs, releases the event, and never calls the handler for it', async () => {
    const result = deferred<StandardSchemaV1.Result<unknown>>();
    const { orders, send, validating, calls } = consumer(() => result.promise, { stopTimeoutMs: 50 });
    const answer = send();
    await validating;
    await within(orders.stop(), { what: 'the consumer has stopped' });
    expect((await answer).status).toBe(503);
    expect(orders.stats()).toMatchObject({ state: 'idle', inFlight: 0, waiting: 0, released: 1 });
    result.resolve({ value: 1 });
    await turn(); // What waits for the result has run by then.
    expect(calls()).toBe(0);
  });

  test('has a failed attempt after timeoutMs, and goes on with the key', async () => {
    const { orders, send, calls } = consumer(
      (payload) => ((payload as { n: number }).n === 1 ? never : Promise.resolve({ value: payload })),
      { timeoutMs: 50, retry: { delaysMs: [1] } },
    );
    const failed: unknown[] = [];
    orders.on('failed', ({ attempt, error }) => void failed.push([attempt, error]));
    const [first, second] = await within(Promise.all([send(1), send(2)]), { what: 'both are answered' });
    expect([first.status, second.status]).toEqual([500, 204]);
    expect(failed).toEqual([[1, expect.stringContaining('timeoutMs is 50, and the schema of order.created')]]);
    expect(orders.stats()).toMatchObject({ processed: 1, failed: 2, deadLettered: 0 });
    expect(calls()).toBe(1);
  });
});

test('a schema that settles between two attempts is run once, and the next one calls the handler', async () => {
  const result = deferred<StandardSchemaV1.Result<unknown>>();
  const validate = vi.fn(() => result.promise);
  const { orders, send, calls } = consumer(validate, { timeoutMs: 50, retry: { delaysMs: [1, 1] } });
  orders.once('failed', () => result.resolve({ value: 1 }));
  expect((await send()).status).toBe(204);
  expect([validate.mock.calls.length, calls()]).toEqual([1, 1]);
});

test('timeoutMs is for the schema and the handler together', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const [result, handling] = [deferred<StandardSchemaV1.Result<unknown>>(), deferred<AbortSignal>()];
  const { send, validating } = consumer(() => result.promise, {
    timeoutMs: 8_000,
    handle: (_event: unknown, { signal }: { signal: AbortSignal }) => {
      handling.resolve(signal);
      return never;
    },
  });
  const answer = send();
  await validating;
  vi.advanceTimersByTime(6_000);
  result.resolve({ value: 1 });
  const signal = await handling.promise;
  vi.advanceTimersByTime(1_990);
  expect(signal.aborted).toBe(false);
  vi.advanceTimersByTime(20);
  expect(signal.reason).toMatchObject({ code: 'POSTCOMMIT_E_WORK_TIMEOUT' });
  expect((await answer).status).toBe(500);
});

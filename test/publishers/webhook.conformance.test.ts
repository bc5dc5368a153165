import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, it } from 'vitest';
import type { Publisher } from '../../src/publishers/publisher.ts';
import { webhook } from '../../src/publishers/webhook.ts';
import { type PublisherHarness, publisherConformance, type ReceivedMessage } from '../../src/testing/index.ts';
import { recordServer } from '../support/servers-used.ts';
import { until } from '../support/wait.ts';
import { type ReceivedRequest, Receiver } from './webhook-receiver.ts';

const bodyBytesMax = 1_000_000;
let receiver: Receiver;

beforeAll(async () => {
  receiver = await Receiver.start();
  receiver.bodyBytesMax = bodyBytesMax;
  recordServer(`HTTP server of Node.js ${process.versions.node}`);
});
afterAll(() => receiver.stop());

function createPublisher(): Publisher {
  return webhook({
    url: receiver.url(),
    healthUrl: receiver.url('/health'),
    secret: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
    // Here topics are URLs, and all of them belong to one receiver on loopback.
    allowPrivateAddresses: true,
    onConnectionError: 'unavailable',
  });
}

/** publish() takes larger batches than the relay gives it, and keeps the same promises for them. */
function createPublisherOfBatches(): Publisher {
  const publisher = createPublisher();
  const capabilities = { ...publisher.capabilities, batchSizeMax: 20 };
  return new Proxy(publisher, {
    get(target, name) {
      if (name === 'capabilities') return capabilities;
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

const harness: PublisherHarness = {
  createPublisher,
  createTopic: async () => receiver.url(`/${randomUUID()}`),
  async read(topic, count) {
    const { pathname } = new URL(topic);
    const arrived = () => receiver.requests.filter(({ path }) => path === pathname);
    await until(() => arrived().length >= count, { what: `${count} requests are at ${pathname}`, timeoutMs: 20_000 });
    return arrived().map(asMessage);
  },
  oversizedBytes: bodyBytesMax,
  malformed: (message) => ({ ...message, headers: { ...message.headers, 'x-note': 'a\r\nx-injected: 1' } }),
  outage: { stop: () => receiver.stop(), start: () => receiver.start() },
  freeze: { freeze: async () => receiver.freeze(), thaw: async () => receiver.thaw() },
  keyless: true,
};

function asMessage({ headers, body }: ReceivedRequest): ReceivedMessage {
  const texts = Object.entries(headers).map(([name, value]) => [name, decoded(String(value))]);
  return {
    body: body.toString(),
    bodyBytes: body,
    key: null,
    headers: Object.fromEntries(texts),
    contentType: headers['content-type'],
    eventId: headers['webhook-id'] as string | undefined,
  };
}

/** What is beyond ASCII comes as percent-encoded UTF-8. */
function decoded(value: string): string {
  return /%[89A-F][0-9A-F]/.test(value) ? decodeURIComponent(value) : value;
}

describe('the webhook publisher', () => {
  for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
});

describe('the webhook publisher with several events in a call', () => {
  const batches = { ...harness, createPublisher: createPublisherOfBatches };
  for (const check of publisherConformance(batches)) it(check.name, check.run, 120_000);
});

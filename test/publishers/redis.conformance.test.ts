import { randomUUID } from 'node:crypto';
import { createClient, RESP_TYPES } from 'redis';
import { describe, it } from 'vitest';
import { redis } from '../../src/publishers/redis.ts';
import { type PublisherHarness, publisherConformance, type ReceivedMessage } from '../../src/testing/index.ts';
import { fileService } from '../support/services.ts';
import { until } from '../support/wait.ts';

const messageBytesMax = 1_000_000;
// An event over the publisher's limit would otherwise pass: Redis's own is half a gigabyte.
const server = fileService('redis', { settings: { 'proto-max-bulk-len': '1mb' } });

async function read(stream: string, count: number): Promise<ReceivedMessage[]> {
  const client = createClient({
    url: server.url,
    commandOptions: { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } },
  });
  client.on('error', () => {});
  await client.connect();
  try {
    await until(async () => (await client.xLen(stream)) >= count, {
      what: `${count} entries are in ${stream}`,
      timeoutMs: 20_000,
    });
    const entries = (await client.sendCommand(['XRANGE', stream, '-', '+'])) as [Buffer, Buffer[]][];
    return entries.map(([, fields]) => toReceived(fields));
  } finally {
    client.destroy();
  }
}

function toReceived(fields: readonly Buffer[]): ReceivedMessage {
  const values = new Map<string, Buffer>();
  for (let index = 0; index < fields.length; index += 2) {
    values.set(String(fields[index]), fields[index + 1] ?? Buffer.alloc(0));
  }
  const text = (name: string) => values.get(name)?.toString();
  const headers = [...values].filter(([name]) => name.startsWith('header:'));
  return {
    body: text('body') ?? '',
    bodyBytes: values.get('body') ?? Buffer.alloc(0),
    key: text('key') ?? null,
    headers: Object.fromEntries(headers.map(([name, value]) => [name.slice('header:'.length), value.toString()])),
    contentType: text('content-type'),
    eventId: text('id'),
  };
}

const harness: PublisherHarness = {
  createPublisher: () => redis({ url: server.url, messageBytesMax }),
  createTopic: async () => `conformance-${randomUUID()}`,
  read,
  oversizedBytes: messageBytesMax,
  malformed: (message) => ({ ...message, headers: { attempts: 3 as unknown as string } }),
  ...server.disturbances,
};

describe('the Redis publisher', () => {
  for (const check of publisherConformance(harness)) it(check.name, check.run, 120_000);
});

import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { type PublisherHarness, publisherConformance, testMessage } from '../../src/testing/index.ts';
import { brokenConnections } from './broken-connections.ts';
import { brokenPublishers, DeduplicatingPublisher } from './broken-publishers.ts';
import { MemoryBroker, MemoryPublisher } from './memory-broker.ts';

const allBroken = { ...brokenPublishers, ...brokenConnections };

/** The names of the checks that fail, with their reasons. */
async function failures(harness: PublisherHarness): Promise<Map<string, string>> {
  const failed = new Map<string, string>();
  for (const check of publisherConformance(harness)) {
    try {
      await check.run();
    } catch (error) {
      failed.set(check.name, String(error));
    }
  }
  return failed;
}

const harnessOf = (publisher: typeof MemoryPublisher) => new MemoryBroker().harness((broker) => new publisher(broker));

describe('the conformance suite', () => {
  // All at once: most of the time they wait for a broker that does not answer.
  const runs = new Map(
    Object.entries(allBroken).map(([name, { publisher }]) => [name, failures(harnessOf(publisher))]),
  );

  it('passes a publisher that does everything right', async () => {
    expect(await failures(harnessOf(MemoryPublisher))).toEqual(new Map());
    expect(await failures(harnessOf(DeduplicatingPublisher))).toEqual(new Map());
  });

  for (const [name, { fails }] of Object.entries(allBroken)) {
    it(`notices a publisher that ${name}`, async () => {
      const failed = (await runs.get(name)) ?? new Map<string, string>();
      const unexpected = [...failed].filter(([check]) => !fails.some((start) => check.startsWith(start)));
      expect(unexpected).toEqual([]);
      expect([...failed.keys()].map((check) => fails.find((start) => check.startsWith(start)))).toEqual(fails);
    });
  }

  // On its own: it counts the sockets of the process.
  it('notices a publisher that leaves a connection open', async () => {
    await Promise.all(runs.values());
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const left: Socket[] = [];
    class Leaking extends MemoryPublisher {
      override async connect(signal: AbortSignal) {
        await super.connect(signal);
        const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
        left.push(socket);
        await once(socket, 'connect');
      }
    }
    const [check] = publisherConformance(harnessOf(Leaking)).filter(({ name }) => name.startsWith('close() leaves'));
    await expect(check?.run()).rejects.toThrow(/sockets are still open/);
    for (const socket of left) socket.destroy();
    server.close();
  });

  it('has no checks for what a harness leaves out', () => {
    const { createPublisher, createTopic, read, ...optional } = harnessOf(MemoryPublisher);
    const names = (harness: PublisherHarness) => publisherConformance(harness).map(({ name }) => name);
    const basic = names({ createPublisher, createTopic, read });
    expect(basic).not.toContainEqual(expect.stringMatching(/oversized|malformed|stopped|never answers/));
    expect(new Set(basic).size).toBe(basic.length);
    const all = names({ createPublisher, createTopic, read, ...optional });
    expect(all.filter((name) => /oversized/.test(name))).toHaveLength(3);
    expect(all.filter((name) => /malformed/.test(name))).toHaveLength(3);
    expect(all.filter((name) => /stopped/.test(name))).toHaveLength(2);
    expect(all.filter((name) => /never answers/.test(name))).toHaveLength(3);
    expect(names({ createPublisher, createTopic, read, keyless: true })).toEqual(
      basic.filter((name) => !/^(the|a) key/.test(name)),
    );
  });
});

describe('testMessage', () => {
  it('counts the bytes of body, key and headers', () => {
    expect(testMessage({ topic: 't', key: 'ü', body: '"ü"', headers: { a: 'ü', bc: '' } }).bytes).toBe(
      2 + 4 + 1 + 2 + 2,
    );
    expect(testMessage({ topic: 't', body: new Uint8Array(7) }).bytes).toBe(7);
  });

  it('makes up an id of its own for each', () => {
    expect(testMessage({ topic: 't' }).eventId).not.toBe(testMessage({ topic: 't' }).eventId);
    expect(testMessage({ topic: 't' })).toMatchObject({ topic: 't', key: null, headers: {}, body: '{}' });
  });
});

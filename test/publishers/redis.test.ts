import { randomUUID } from 'node:crypto';
import { createClient, type RedisClientType } from 'redis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Message, Publisher } from '../../src/publishers/publisher.ts';
import { type RedisOptions, redis } from '../../src/publishers/redis.ts';
import { testMessage } from '../../src/testing/test-message.ts';
import { fileService } from '../support/services.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait.ts';
import { holdingProxy } from './holding-proxy.ts';

const server = fileService('redis', { settings: { 'proto-max-bulk-len': '1mb' } });
let admin: RedisClientType;
beforeAll(async () => {
  admin = createClient({ url: server.url }) as RedisClientType;
  admin.on('error', () => {});
  await admin.connect();
});
afterAll(() => admin?.destroy());

const soon = () => AbortSignal.timeout(10_000);

async function withPublisher(options: RedisOptions, work: (publisher: Publisher) => Promise<void>): Promise<void> {
  const publisher = redis({ url: server.url, ...options });
  try {
    await work(publisher);
  } finally {
    await publisher.close();
  }
}

function message(more: Partial<Message> = {}): Message {
  return testMessage({ topic: `stream-${randomUUID()}`, key: 'order:1', ...more });
}

async function idsIn(stream: string): Promise<unknown[]> {
  return ((await admin.xRange(stream, '-', '+')) ?? []).map((entry) => entry.message.id);
}

describe('an entry', () => {
  it('has the event in fields of its own', async () => {
    await withPublisher({}, async (publisher) => {
      const sent = message({ eventType: 'order.created', headers: { traceparent: '00-1-2-01', 'x-empty': '' } });
      const unordered = message({ topic: sent.topic, key: null });
      expect(await publisher.publish([sent, unordered], soon())).toEqual([
        { kind: 'delivered' },
        { kind: 'delivered' },
      ]);
      const entries = (await admin.xRange(sent.topic, '-', '+')) ?? [];
      expect(entries.map((entry) => ({ ...entry.message }))).toEqual([
        {
          id: sent.eventId,
          type: 'order.created',
          key: 'order:1',
          'content-type': 'application/json',
          'header:traceparent': '00-1-2-01',
          'header:x-empty': '',
          body: '{}',
        },
        { id: unordered.eventId, type: 'test.happened', 'content-type': 'application/json', body: '{}' },
      ]);
    });
  });

  it('that is not text throughout is rejected, and an empty topic is the fault of the route', async () => {
    await withPublisher({}, async (publisher) => {
      const wrong = [
        { key: 5 as unknown as string },
        { headers: { attempts: null as unknown as string } },
        { body: { total: 5 } as unknown as string },
        { contentType: undefined as unknown as string },
      ].map((more) => ({ ...message({ key: null }), ...more }));
      const outcomes = await publisher.publish([...wrong, message({ topic: '' })], soon());
      expect(outcomes.map(({ kind }) => kind)).toEqual(['rejected', 'rejected', 'rejected', 'rejected', 'failed']);
      expect(outcomes[1]).toMatchObject({ reason: 'The field header:attempts is not a text but object.' });
    });
  });
});

describe('maxLen', () => {
  const fill = async (options: RedisOptions) => {
    const batch = Array.from({ length: 250 }, (_, n) => message({ topic: 'trimmed', key: `order:${n}` }));
    await admin.del('trimmed');
    await withPublisher(options, async (publisher) => {
      for (let round = 0; round < 4; round++) await publisher.publish(batch, soon());
    });
    return admin.xLen('trimmed');
  };

  it('keeps about as many entries, or just as many', async () => {
    expect(await fill({})).toBe(1_000);
    expect(await fill({ maxLen: 50, maxLenExact: true })).toBe(50);
    const about = await fill({ maxLen: 50 });
    expect(about).toBeGreaterThanOrEqual(50);
    expect(about).toBeLessThan(500);
  });
});

describe('what Redis answers', () => {
  it('a key of another type fails its own event alone, and what follows it elsewhere waits', async () => {
    await withPublisher({}, async (publisher) => {
      await admin.set('not-a-stream', 'x');
      const batch = [
        message({ topic: 'not-a-stream', key: 'order:1' }),
        message({ key: 'order:1' }),
        message({ key: 'order:2' }),
      ];
      const outcomes = await publisher.publish(batch, soon());
      expect(outcomes).toMatchObject([
        { kind: 'failed', reason: expect.stringMatching(/^Stream not-a-stream: WRONGTYPE/) },
        { kind: 'released', reason: expect.stringMatching(/earlier event of the same key/) },
        { kind: 'delivered' },
      ]);
      expect(await idsIn(batch[1]?.topic ?? '')).toEqual([]);
    });
  });

  it('no memory left is an outage, until there is some', async () => {
    await withPublisher({}, async (publisher) => {
      await publisher.connect(soon());
      await admin.configSet('maxmemory', '1');
      const [full] = await publisher.publish([message()], soon());
      await admin.configSet('maxmemory', '0');
      expect(full).toMatchObject({ kind: 'unavailable', reason: expect.stringMatching(/^OOM/) });
      expect(await publisher.publish([message()], soon())).toEqual([{ kind: 'delivered' }]);
    });
  });

  it('a replica is an outage, and is asked again over a new connection', async () => {
    await withPublisher({ name: 'relay' }, async (publisher) => {
      const connectionOf = async () => /id=(\d+).* name=relay/.exec(await admin.sendCommand(['CLIENT', 'LIST']))?.[1];
      await publisher.connect(soon());
      const before = await connectionOf();
      await admin.sendCommand(['REPLICAOF', '127.0.0.1', '1']);
      const [readOnly] = await publisher.publish([message()], soon());
      await admin.sendCommand(['REPLICAOF', 'NO', 'ONE']);
      expect(readOnly).toMatchObject({ kind: 'unavailable', reason: expect.stringMatching(/^READONLY/) });
      expect(await publisher.publish([message()], soon())).toEqual([{ kind: 'delivered' }]);
      expect(await connectionOf()).not.toBe(before);
    });
  });

  it('a missing right fails the event and says so', async () => {
    await admin.sendCommand(['ACL', 'SETUSER', 'reader', 'on', '>secret', '~*', '+@read']);
    await withPublisher({ username: 'reader', password: 'secret' }, async (publisher) => {
      await publisher.connect(soon());
      const [outcome] = await publisher.publish([message()], soon());
      expect(outcome).toMatchObject({ kind: 'failed', reason: expect.stringMatching(/NOPERM/) });
    });
  });

  it('the right to XADD is enough', async () => {
    await admin.sendCommand(['ACL', 'SETUSER', 'writer', 'on', '>secret', '~*', '+xadd', '+ping']);
    await withPublisher({ username: 'writer', password: 'secret' }, async (publisher) => {
      await publisher.connect(soon());
      expect(await publisher.publish([message()], soon())).toEqual([{ kind: 'delivered' }]);
      await admin.sendCommand(['CLIENT', 'KILL', 'USER', 'writer']);
      await until(async () => (await publisher.publish([message()], soon()))[0]?.kind === 'delivered', {
        what: 'it is connected again',
      });
      await publisher.health(soon());
    });
  });

  it('an entry over the limit of the server takes no other down for long', async () => {
    await withPublisher({ messageBytesMax: 4_000_000 }, async (publisher) => {
      const topic = `stream-${randomUUID()}`;
      const tooLarge = message({ topic, key: 'order:0', body: 'x'.repeat(2_000_000) });
      const others = [1, 2, 3].map((n) => message({ topic, key: `order:${n}` }));
      const outcomes = await publisher.publish([tooLarge, ...others], soon());
      expect(outcomes.map(({ kind }) => kind)).not.toContain('delivered');
      const again = await publisher.publish(others, soon());
      expect(again.map(({ kind }) => kind)).toEqual(['delivered', 'delivered', 'delivered']);
    });
  });
});

describe('a connection that breaks', () => {
  it('answers for what it does not know, and nothing that is ok is lost', async () => {
    const proxy = await startTcpProxy({ host: '127.0.0.1', port: server.own.port });
    await withPublisher({ url: proxy.url(server.url) }, async (publisher) => {
      const topic = `stream-${randomUUID()}`;
      const taken: string[] = [];
      const kinds = new Set<string>();
      for (let round = 0; round < 20; round++) {
        const batch = Array.from({ length: 200 }, (_, n) => message({ topic, key: `order:${n}` }));
        const publishing = publisher.publish(batch, soon());
        if (round % 4 === 1) setImmediate(() => proxy.cut());
        for (const [index, { kind }] of (await publishing).entries()) {
          kinds.add(kind);
          if (kind === 'delivered') taken.push(batch[index]?.eventId ?? '');
        }
      }
      expect([...kinds].sort()).toEqual(['delivered', 'unavailable']);
      const arrived = new Set(await idsIn(topic));
      expect(taken.filter((id) => !arrived.has(id))).toEqual([]);
    });
    await proxy.close();
  });

  it('leaves nothing behind that arrives after what is sent later', async () => {
    const proxy = await holdingProxy(server.own.port);
    await withPublisher({ url: `redis://127.0.0.1:${proxy.port}` }, async (publisher) => {
      const topic = `stream-${randomUUID()}`;
      const [first, second] = [message({ topic }), message({ topic })];
      await publisher.connect(soon());
      proxy.hold();
      const [outcome] = await publisher.publish([first], AbortSignal.timeout(300));
      expect(outcome).toEqual({ kind: 'unavailable', reason: 'Redis did not answer in time.' });
      for (const each of [first, second])
        expect(await publisher.publish([each], soon())).toEqual([{ kind: 'delivered' }]);
      await proxy.release();
      await publisher.health(soon());
      expect(await idsIn(topic)).toEqual([first.eventId, second.eventId]);
    });
    await proxy.close();
  });

  it('is of no concern to a publisher that is closed', async () => {
    const publisher = redis({ url: server.url });
    await publisher.connect(soon());
    await publisher.close();
    expect(await publisher.publish([message()], soon())).toEqual([
      { kind: 'unavailable', reason: 'The publisher is closed.' },
    ]);
    await expect(publisher.health(soon())).rejects.toThrow('closed');
  });
});

describe('a client that is given', () => {
  it('is left alone, and its options count', async () => {
    const given = createClient({ url: server.url, keyPrefix: 'app:' });
    await given.connect();
    const publisher = redis({ client: given });
    const sent = message();
    await publisher.connect(soon());
    expect(await publisher.publish([sent], soon())).toEqual([{ kind: 'delivered' }]);
    await publisher.close();
    expect(await given.ping()).toBe('PONG');
    expect(await idsIn(`app:${sent.topic}`)).toEqual([sent.eventId]);
    await given.close();
  });
});

describe('options', () => {
  it.each([
    [{ maxLength: 5 }, /There is no option maxLength/],
    [{ url: 'http://localhost' }, /url must be redis/],
    [{ maxLen: 0 }, /maxLen must be a whole number/],
    [{ maxLenExact: true }, /maxLenExact needs maxLen/],
    [{ messageBytesMax: 1.5 }, /messageBytesMax must be a whole number/],
    [{ client: {}, url: 'redis://localhost' }, /client and url exclude each other/],
    [{ client: {} }, /client must be a client/],
  ])('%j is refused', (options, message) => {
    expect(() => redis(options as RedisOptions)).toThrow(
      expect.objectContaining({ code: 'POSTCOMMIT_E_BAD_OPTION', message: expect.stringMatching(message) }),
    );
  });
});

import { existsSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { converse } from '../../services/conversation.ts';
import { services } from '../../services/registry.ts';
import type { ServiceName } from '../../services/service.ts';
import { endChild, startChild } from '../support/child.ts';
import { privateService } from '../support/services.ts';
import { until, within } from '../support/wait.ts';
import { inKafka, inNats, inRabbitmq, inRedis, type KeptData } from './kept-data.ts';

// The first run on a machine downloads the servers.
const timeoutMs = 300_000;

const keptData: Partial<Record<ServiceName, KeptData>> = {
  redis: inRedis,
  nats: inNats,
  kafka: inKafka,
  rabbitmq: inRabbitmq,
};

describe('a private server', () => {
  for (const name of ['redis', 'nats', 'kafka', 'rabbitmq', 'sqs'] as const) {
    test(`${name} stops, crashes and comes back on its port with its data`, { timeout: timeoutMs }, async (context) => {
      const server = await privateService(name, context);
      const check = () => services[name].check(server.env);
      const { port, url } = server;
      const data = keptData[name];
      await data?.write(port);
      if (data) await until(() => data.isThere(port), { what: 'the data is there' });

      await Promise.all([server.stop(), server.stop()]);
      await expect(check()).rejects.toThrow();
      await Promise.all([server.start(), server.start()]);
      await check();
      if (data) expect(await data.isThere(port)).toBe(true);

      await server.kill();
      await expect(check()).rejects.toThrow();
      await server.start();
      await check();
      expect([server.port, server.url]).toEqual([port, url]);
      if (data) expect(await data.isThere(port)).toBe(true);

      await server.remove();
      await expect(check()).rejects.toThrow();
      expect(existsSync(server.folder)).toBe(false);
      await expect(server.start()).rejects.toThrow(/was removed/);
    });
  }

  test('listens on loopback only', { timeout: timeoutMs }, async (context) => {
    const { port } = await privateService('redis', context);
    const others = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    for (const { address, family } of others.filter(({ internal }) => !internal)) {
      if (family !== 'IPv4') continue;
      await expect(converse(address, port, (ask) => ask('PING\r\n', (got) => got.length > 0))).rejects.toThrow();
    }
  });

  test('that is frozen accepts connections and answers nothing', { timeout: timeoutMs }, async (context) => {
    const server = await privateService('redis', context);
    await server.freeze();
    await expect(services.redis.check(server.env)).rejects.toThrow(/no answer/);
    server.thaw();
    expect(await services.redis.check(server.env)).toBe(server.version);
    await server.freeze();
    await within(server.stop(), { what: 'a frozen server stopped' });
  });

  test('takes settings of its own, and says why it does not start', { timeout: timeoutMs }, async (context) => {
    const server = await privateService('redis', context, { settings: { requirepass: 'secret' } });
    const login = { REDIS_URL: `redis://:secret@127.0.0.1:${server.port}` };
    expect(await services.redis.check(login)).toMatch(/^\d+\./);
    await expect(privateService('redis', context, { settings: { maxmemory: 'lots' } })).rejects.toThrow(
      /Redis ended while starting.*'maxmemory "?lots"?'/s,
    );
  });

  test('ends with a process that is killed, and leaves nothing', { timeout: timeoutMs }, async (context) => {
    await privateService('redis', context);
    const owner = startChild('test/services/service-owner.child.ts');
    try {
      const { port, folder } = await owner.next();
      const env = { REDIS_URL: `redis://127.0.0.1:${port}` };
      await services.redis.check(env);
      owner.kill('SIGKILL');
      await until(() => !existsSync(folder), { what: 'its folder is gone' });
      await expect(services.redis.check(env)).rejects.toThrow();
    } finally {
      await endChild(owner);
    }
  });
});

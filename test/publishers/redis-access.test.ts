import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type RedisOptions, redis } from '../../src/publishers/redis.ts';
import { testMessage } from '../../src/testing/test-message.ts';
import { privateService } from '../support/services.ts';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

const timeoutMs = 60_000;

async function connecting(options: RedisOptions): Promise<unknown> {
  const publisher = redis(options);
  try {
    await publisher.connect(AbortSignal.timeout(10_000));
    const [outcome] = await publisher.publish([testMessage({ topic: 'orders' })], AbortSignal.timeout(10_000));
    return outcome?.kind;
  } catch (error) {
    return error;
  } finally {
    await publisher.close();
  }
}

function refused(words: RegExp) {
  return expect.objectContaining({
    code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
    message: expect.stringMatching(words),
  });
}

it('wrong credentials are refused at once, with the words of Redis', { timeout: timeoutMs }, async (context) => {
  const { port, url } = await privateService('redis', context, { settings: { requirepass: 'secret' } });
  expect(await connecting({ url })).toEqual(refused(/redis: NOAUTH/));
  expect(await connecting({ url: `redis://:wrong@127.0.0.1:${port}` })).toEqual(refused(/redis: WRONGPASS/));
  expect(await connecting({ url, username: 'nobody', password: 'secret' })).toEqual(refused(/redis: WRONGPASS/));
  expect(await connecting({ url, password: 'secret', database: 99 })).toEqual(refused(/DB index is out of range/));
  expect(await connecting({ url, password: 'secret' })).toBe('delivered');
});

it('a certificate must be trusted, and options of TLS are handed through', { timeout: timeoutMs }, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-redis-tls-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')];
  await writeFile(certificate, testCertificate);
  await writeFile(key, testCertificateKey);
  const tlsPort = await freePort();
  await privateService('redis', context, {
    settings: {
      'tls-port': String(tlsPort),
      'tls-cert-file': certificate,
      'tls-key-file': key,
      'tls-ca-cert-file': certificate,
      'tls-auth-clients': 'no',
    },
  });
  const url = `rediss://localhost:${tlsPort}`;
  expect(await connecting({ url })).toEqual(refused(/self-signed certificate/));
  expect(await connecting({ url, socket: { tls: true, ca: testCertificate } })).toBe('delivered');
  const other = { url: `rediss://127.0.0.1:${tlsPort}`, socket: { tls: true, ca: testCertificate } as const };
  expect(await connecting(other)).toEqual(refused(/does not match certificate/));
});

it('a server that is not there does not refuse', async () => {
  const error = await connecting({ url: `redis://127.0.0.1:${await freePort()}` });
  expect(error).toMatchObject({
    code: 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE',
    message: expect.stringMatching(/redis: connect ECONNREFUSED/),
  });
});

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
  const address = server.address();
  await new Promise((closed) => server.close(closed));
  return typeof address === 'object' && address ? address.port : 0;
}

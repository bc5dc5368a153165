import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { nats } from '../../src/publishers/nats.ts';
import { privateService } from '../support/services.ts';
import { until } from '../support/wait.ts';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

it('speaks TLS to a server it trusts and refuses the others', async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'postcommit-nats-'));
  context.onTestFinished(() => rm(folder, { recursive: true, force: true }));
  await writeFile(join(folder, 'cert.pem'), testCertificate);
  await writeFile(join(folder, 'key.pem'), testCertificateKey);
  const tls = `{ cert_file: "${join(folder, 'cert.pem')}", key_file: "${join(folder, 'key.pem')}" }`;
  const server = await privateService('nats', context, { settings: { tls } });
  const servers = `localhost:${server.port}`;
  const soon = () => AbortSignal.timeout(10_000);

  const refusal = { code: 'POSTCOMMIT_E_DESTINATION_REFUSED' };
  await expect(nats({ servers }).connect(soon())).rejects.toMatchObject(refusal);
  await expect(nats({ servers, tls: {} }).connect(soon())).rejects.toMatchObject(refusal);

  const publisher = nats({ servers, tls: { ca: testCertificate } });
  await publisher.connect(soon());
  await publisher.health(soon());
  await server.freeze();
  // A thread of the server may still answer while the others stop.
  const isSilent = () =>
    publisher.health(AbortSignal.timeout(200)).then(
      () => false,
      (error) => /no answer in time/.test(error.message),
    );
  await until(isSilent, { what: 'the server is silent' });
  await expect(publisher.health(AbortSignal.timeout(200))).rejects.toThrow(/not answer in time/);
  server.thaw();
  await publisher.health(soon());
  await publisher.close();
}, 60_000);

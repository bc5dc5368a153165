import { describe, expect, it } from 'vitest';
import { until, within } from '../support/wait.ts';
import { testCertificate } from './webhook-certificate.ts';
import { Receiver } from './webhook-receiver.ts';
import { open, publishOne } from './webhook-scene.ts';

describe('connect() and health()', () => {
  const soon = () => AbortSignal.timeout(5_000);

  it('resolve at once without a url of its own', async () => {
    await open().connect(soon());
    await open().health(soon());
  });

  it('open a connection to the url and send nothing', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    await publisher.connect(soon());
    await publisher.health(soon());
    expect(receiver.connections).toBe(2);
    expect(receiver.requests).toHaveLength(0);
    await receiver.stop();
    await expect(publisher.health(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE',
      message: expect.stringContaining('refused the connection'),
    });
  });

  it('refuse a certificate that is not trusted: the relay does not start', async () => {
    const receiver = await Receiver.forTest({ secure: true });
    const url = receiver.url('/', 'localhost');
    await expect(open({ url }).connect(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringContaining('not trusted'),
    });
    await open({ url, tls: { ca: testCertificate } }).connect(soon());
  });

  it('ask healthUrl where there is one', async () => {
    const receiver = await Receiver.forTest();
    let status = 200;
    const asked: string[] = [];
    receiver.answer = ({ method, path, headers }, response) => {
      asked.push(`${method} ${path} ${headers.authorization}`);
      response.writeHead(status).end();
    };
    const publisher = open({
      url: receiver.url(),
      healthUrl: receiver.url('/health'),
      headers: { authorization: 'a' },
    });
    await publisher.connect(soon());
    status = 503;
    await expect(publisher.health(soon())).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE' });
    status = 401;
    await expect(publisher.connect(soon())).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_REFUSED' });
    expect(asked).toEqual(Array(3).fill('GET /health a'));
  });

  it('end with their signal', async () => {
    // A name server that never answers.
    const publisher = open({ url: 'http://hooks.example.com/', lookup: () => {} });
    const calls = [
      () => publisher.connect(AbortSignal.timeout(50)),
      () => publisher.health(AbortSignal.timeout(50)),
      () => publisher.health(AbortSignal.abort()),
    ];
    for (const call of calls) {
      await expect(within(call(), { what: 'it ends', timeoutMs: 2_000 })).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_DESTINATION_UNAVAILABLE',
      });
    }
  });

  it('close() lets requests end, but not longer than their timeout', async () => {
    const receiver = await Receiver.forTest();
    receiver.answer = (_, response) => setTimeout(() => response.writeHead(204).end(), 100);
    const patient = open({ url: receiver.url() });
    const ending = publishOne(patient);
    await patient.close();
    expect(await ending).toEqual({ kind: 'delivered' });

    await until(() => receiver.connectionsOpen === 0, { what: 'its connection is gone' });
    receiver.freeze();
    // Two behind each other in one slot would take twice the timeout.
    const publisher = open({ perHostMax: 1, timeoutMs: 1_500 });
    const first = publishOne(publisher, receiver.url());
    await until(() => receiver.connectionsOpen > 0, { what: 'the first one has the slot' });
    const second = publishOne(publisher, receiver.url());
    await within(publisher.close(), { what: 'it is closed', timeoutMs: 2_500 });
    expect((await first).kind).toBe('failed');
    // It waited for its turn or had just begun: not known to be delivered in either case.
    expect(['failed', 'unavailable']).toContain((await second).kind);
  });

  it('close() ends idle connections at once', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    await publishOne(publisher);
    await publishOne(publisher, receiver.url('/route'));
    expect(receiver.connectionsOpen).toBe(2);
    await publisher.close();
    await until(() => receiver.connectionsOpen === 0, { what: 'they are closed', timeoutMs: 2_000 });
  });

  it('publish() after close() is answered, not sent', async () => {
    const receiver = await Receiver.forTest();
    const publisher = open({ url: receiver.url() });
    await publisher.close();
    expect((await publishOne(publisher)).kind).toBe('unavailable');
    await publisher.connect(soon());
    expect(await publishOne(publisher)).toEqual({ kind: 'delivered' });
  });
});

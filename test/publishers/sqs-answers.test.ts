import { randomUUID } from 'node:crypto';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { CreateQueueCommand, SQSClient } from '@aws-sdk/client-sqs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sqs } from '../../src/publishers/sqs.ts';
import { sqsError } from './aws-faults.ts';
import { QueueConsumer, testAccess } from './aws-queue.ts';
import { AwsScene, message, soon } from './aws-scene.ts';
import { testCertificate, testCertificateKey } from './webhook-certificate.ts';

const aws = new AwsScene(sqs);
let consumer: QueueConsumer;
let admin: SQSClient;
beforeAll(() => {
  consumer = new QueueConsumer(aws.server.url);
  admin = new SQSClient({ ...testAccess, endpoint: aws.server.url });
});
afterAll(() => {
  consumer?.close();
  admin?.destroy();
});

describe('what AWS answers', () => {
  const sending = (answer: { status: number; body: string }) => {
    aws.faults.fault = ({ action }) => (action === 'SendMessageBatch' ? answer : undefined);
  };

  it.each([
    [400, 'ThrottlingException', 'unavailable'],
    [403, 'RequestThrottled', 'unavailable'],
    [503, 'ServiceUnavailable', 'unavailable'],
    [500, 'InternalFailure', 'unavailable'],
    [403, 'ExpiredToken', 'unavailable'],
    [403, 'AccessDenied', 'failed'],
    [400, 'AccessDeniedException', 'failed'],
    [400, 'KmsAccessDenied', 'failed'],
    [400, 'InvalidAddress', 'failed'],
    [400, 'SomethingNew', 'failed'],
    [400, 'InvalidMessageContents', 'rejected'],
  ])('%i %s is %s', async (status, code, kind) => {
    const queueUrl = await consumer.createQueue('standard');
    sending(sqsError(status, code));
    const [outcome] = await aws.publisher.publish([message(queueUrl)], soon());
    expect(outcome).toMatchObject({ kind, reason: expect.stringContaining(code.replace(/Exception$/, '')) });
    aws.faults.fault = undefined;
    expect(await aws.publisher.publish([message(queueUrl)], soon())).toEqual([{ kind: 'delivered' }]);
  });

  it('a request that is refused for one of its messages costs the others nothing', async () => {
    const queueUrl = await consumer.createQueue('standard');
    const batch = Array.from({ length: 10 }, (_, n) => message(queueUrl, { key: `order:${n}`, body: `body ${n}` }));
    aws.faults.fault = ({ body }) => (body.includes('body 7') ? sqsError(400, 'BatchRequestTooLong') : undefined);
    const outcomes = await aws.publisher.publish(batch, soon());
    expect(outcomes.map(({ kind }, n) => (kind === 'delivered' ? '' : `${n} ${kind}`)).join('')).toBe('7 rejected');
    expect(await consumer.read(queueUrl, 9)).toHaveLength(9);
  });

  it('a message over the limit of its queue is rejected alone', async () => {
    const Attributes = { MaximumMessageSize: '1024' };
    const { QueueUrl = '' } = await admin.send(new CreateQueueCommand({ QueueName: `s-${randomUUID()}`, Attributes }));
    const batch = [message(QueueUrl, { body: 'x'.repeat(2_000) }), message(QueueUrl, { key: 'order:2' })];
    expect(await aws.publisher.publish(batch, soon())).toMatchObject([
      { kind: 'rejected', reason: expect.stringMatching(/Message must be shorter than 1024 bytes/) },
      { kind: 'delivered' },
    ]);
  });

  it('one entry that is throttled leaves the others ok', async () => {
    const queueUrl = await consumer.createQueue('standard');
    sending({
      status: 200,
      body: JSON.stringify({ Failed: [{ Id: '0', Code: 'RequestThrottled', SenderFault: true }], Successful: [] }),
    });
    expect(await aws.publisher.publish([message(queueUrl)], soon())).toEqual([
      { kind: 'unavailable', reason: 'RequestThrottled' },
    ]);
  });
});

describe('connect()', () => {
  it.each([
    [403, 'InvalidClientTokenId'],
    [403, 'SignatureDoesNotMatch'],
    [400, 'UnrecognizedClientException'],
    [403, 'ExpiredToken'],
  ])('is refused with %i %s', async (status, code) => {
    aws.faults.fault = () => sqsError(status, code, 'The security token is invalid.');
    await expect(aws.publisher.connect(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringMatching(new RegExp(`sqs: ${code}: The security token is invalid.`)),
    });
  });

  it('needs no right to list queues, but where the queue is known that to send', async () => {
    aws.faults.fault = () => sqsError(403, 'AccessDenied', 'not you');
    await aws.publisher.connect(soon());
    await aws.publisher.close();
    aws.open({ queueUrl: await consumer.createQueue('standard') });
    await expect(aws.publisher.connect(soon())).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_REFUSED' });
  });

  it('is refused by us when the certificate is not trusted, and options of TLS are handed through', async () => {
    const secure = createServer({ cert: testCertificate, key: testCertificateKey }, (_, response) =>
      response.end('{}'),
    );
    await new Promise<void>((ready) => secure.listen(0, 'localhost', ready));
    const endpoint = `https://localhost:${(secure.address() as AddressInfo).port}`;
    aws.open({ endpoint });
    await expect(aws.publisher.connect(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DESTINATION_REFUSED',
      message: expect.stringMatching(/self-signed certificate/),
    });
    await aws.publisher.close();
    aws.open({ endpoint, clientOptions: { requestHandler: { httpsAgent: { ca: testCertificate } } } });
    await aws.publisher.connect(soon());
    await aws.publisher.close();
    await new Promise((closed) => secure.close(closed));
  });

  it('names the option if there is no region', async () => {
    // The client would otherwise find one in the environment and in the files of this user.
    const noRegion = async () => {
      throw new Error('Region is missing');
    };
    const { region: _region, ...access } = testAccess;
    const publisher = sqs({ ...access, endpoint: aws.faults.url, clientOptions: { region: noRegion } });
    await expect(publisher.connect(soon())).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_BAD_OPTION',
      message: expect.stringContaining('sqs(): region is missing. Give region, or set AWS_REGION.'),
    });
  });

  it('is refused without credentials', async () => {
    aws.open({
      credentials: async () => {
        throw Object.assign(new Error('Could not load credentials from any providers'), {
          name: 'CredentialsProviderError',
        });
      },
    });
    await expect(aws.publisher.connect(soon())).rejects.toMatchObject({ code: 'POSTCOMMIT_E_DESTINATION_REFUSED' });
    expect(await aws.publisher.publish([message('http://x/1/q')], soon())).toMatchObject([{ kind: 'unavailable' }]);
  });
});

import { describe, expect, it, test } from 'vitest';
import { importClient, isOlder } from '../../src/publishers/import-client.ts';

describe('importClient', () => {
  it('loads a client that is new enough', async () => {
    expect(await importClient('redis', { oldest: '6.0.0' }, async () => 'loaded')).toBe('loaded');
  });

  it.each(['redis', 'amqplib', 'kafkajs', '@nats-io/jetstream', '@nats-io/transport-node', '@aws-sdk/client-sqs'])(
    'names the installed and the needed version of %s, and does not load it',
    async (name) => {
      const load = importClient(name, { oldest: '999.1.0' }, async () => expect.unreachable());
      await expect(load).rejects.toMatchObject({
        code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
        detail: expect.stringMatching(
          new RegExp(
            `^${name} \\d+\\.\\d+\\.\\d+ is installed, 999\\.1\\.0 or later is needed\\. Run: npm install ${name}@latest$`,
          ),
        ),
      });
    },
  );

  it('names every package to install', async () => {
    const name: string = 'no-such-client';
    const load = importClient(name, { oldest: '1.0.0', install: `${name} and-its-friend` }, () => import(name));
    await expect(load).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PACKAGE_MISSING',
      detail: 'Run: npm install no-such-client and-its-friend',
    });
  });
});

test.each([
  ['4.7.1', '6.0.0', true],
  ['0.10.9', '2.0.0', true],
  ['2.2.3', '2.2.4', true],
  ['2.2.4', '2.2.4', false],
  ['2.12.0', '2.2.4', false],
  ['10.0.0', '6.0.0', false],
  ['6.0.0-beta.1', '6.0.0', false],
])('isOlder(%s, %s) is %s', (version, oldest, expected) => {
  expect(isOlder(version, oldest)).toBe(expected);
});

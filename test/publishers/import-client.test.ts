import { readFile } from 'node:fs/promises';
import { describe, expect, it, test } from 'vitest';
import { type ClientName, importClient, oldestClients } from '../../src/publishers/import-client.ts';
import { isOlder } from '../../src/version-order.ts';
import { clients } from '../clients/clients.ts';

describe('importClient', () => {
  it('loads a client that is new enough', async () => {
    expect(await importClient('redis', async () => 'loaded')).toBe('loaded');
  });

  it.each([
    'redis',
    'amqplib',
    'kafkajs',
    '@nats-io/jetstream',
    '@nats-io/transport-node',
    '@aws-sdk/client-sqs',
  ] as const)('names the installed and the needed version of %s, and does not load it', async (name) => {
    const load = importClient(name, async () => expect.unreachable(), { oldest: '999.1.0' });
    await expect(load).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PACKAGE_TOO_OLD',
      detail: expect.stringMatching(
        new RegExp(
          `^${name} \\d+\\.\\d+\\.\\d+ is installed, 999\\.1\\.0 or later is needed\\. Run: npm install ${name}@latest$`,
        ),
      ),
    });
  });

  it('names every package to install', async () => {
    const name = 'no-such-client' as ClientName;
    const load = importClient(name, () => import(name), { oldest: '1.0.0', install: `${name} and-its-friend` });
    await expect(load).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_PACKAGE_MISSING',
      detail: 'Run: npm install no-such-client and-its-friend',
    });
  });
});

describe('the oldest versions', () => {
  const pages: Record<ClientName, string> = {
    redis: 'redis',
    amqplib: 'rabbitmq',
    '@nats-io/transport-node': 'nats',
    '@nats-io/jetstream': 'nats',
    kafkajs: 'kafka',
    '@confluentinc/kafka-javascript': 'kafka',
    '@platformatic/kafka': 'kafka',
    '@aws-sdk/client-sqs': 'sqs',
    '@aws-sdk/client-sns': 'sns',
  };

  it.each(Object.entries(oldestClients))('the page of the publisher names %s %s', async (name, version) => {
    const page = new URL(`../../docs/publishers/${pages[name as ClientName]}.md`, import.meta.url);
    expect(await readFile(page, 'utf8')).toContain(`\`${name}\` ${version}`);
  });

  it('every client is an optional peer in any version, and has tests for npm run test:clients', async () => {
    const manifest = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8'));
    const tested = clients.flatMap(({ packages }) => packages);
    expect([...tested].sort()).toEqual(Object.keys(oldestClients).sort());
    for (const name of tested) {
      expect(manifest.peerDependencies[name], name).toBe('*');
      expect(manifest.peerDependenciesMeta[name], name).toEqual({ optional: true });
    }
  });

  it('what is installed here is one of them or later', async () => {
    for (const name of ['redis', 'amqplib', '@nats-io/jetstream', 'kafkajs', '@aws-sdk/client-sns'] as const) {
      expect(await importClient(name, async () => 'loaded')).toBe('loaded');
    }
  });

  it.each([
    ['redis', '6.2.1'],
    ['amqplib', '2.3.0'],
    ['@nats-io/transport-node', '3.0.0'],
    ['@nats-io/jetstream', '3.0.0'],
  ] as const)('%s %s fails tests of its publisher, so it is too old', (name, version) => {
    expect(isOlder(version, oldestClients[name])).toBe(true);
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

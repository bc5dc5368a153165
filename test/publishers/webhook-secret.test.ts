import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { verifyWebhook, webhook } from '../../src/publishers/webhook.ts';
import { testMessage } from '../../src/testing/index.ts';
import { withScenario } from '../support/relay-scenario.ts';
import { Receiver } from './webhook-receiver.ts';

const secretFor = (index: number) => `whsec_${Buffer.alloc(32, index + 1).toString('base64')}`;

test(
  'the example of the docs finds the secret of every URL as it is stored, also of those that have another normal form',
  withScenario(async ({ db: { pool } }) => {
    const receiver = await Receiver.forTest();
    const { port } = receiver;
    const urls = [
      `http://127.0.0.1:${port}`,
      `http://127.0.0.1:${port}/hooks`,
      `HTTP://127.0.0.1:${port}/Hooks`,
      `http://127.1:${port}/short`,
      `http://127.0.0.1:${port}/a/../b`,
      `http://127.0.0.1:${port}/größe?q=ü#part`,
      `http://127.0.0.1:${port}?q=1`,
    ];
    await pool.query('create table customer_webhooks (url text primary key, secret text not null)');
    for (const [index, url] of urls.entries()) {
      await pool.query('insert into customer_webhooks values ($1, $2)', [url, secretFor(index)]);
    }
    const page = await readFile(new URL('../../docs/publishers/webhook.md', import.meta.url), 'utf8');
    // What the page shows, without its types.
    const [source] = /async function secretOf.*?\n}/s.exec(page) ?? [''];
    const code = `return ${source.replace('(url: string): Promise<string>', '(url)')}`;
    const secretOf = new Function('pool', code)(pool) as (url: string) => Promise<string>;

    const publisher = webhook({ secret: ({ url }) => secretOf(url), allowPrivateAddresses: true });
    for (const [index, url] of urls.entries()) {
      const outcome = await publisher.publish([testMessage({ topic: url, body: '1' })], AbortSignal.timeout(10_000));
      expect(outcome, url).toEqual([{ kind: 'delivered' }]);
      const { headers } = receiver.requests[index] ?? { headers: {} };
      expect(() => verifyWebhook({ headers, body: '1', secret: secretFor(index) }), url).not.toThrow();
    }
    await publisher.close();
  }),
);

test('the url of the destination is handed over as it was given too', async () => {
  const receiver = await Receiver.forTest();
  const url = `HTTP://127.0.0.1:${receiver.port}`;
  const seen: string[] = [];
  const publisher = webhook({
    url,
    secret: (target) => {
      seen.push(target.url);
      return null;
    },
    outcomeOf: (response) => {
      seen.push(response.url);
      return undefined;
    },
  });
  await publisher.publish([testMessage({ topic: 'order.created' })], AbortSignal.timeout(10_000));
  await publisher.close();
  expect(seen).toEqual([url, url]);
});

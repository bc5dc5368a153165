import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { type Installed, NotAvailable, type Service } from './service.ts';

/** SQS and SNS at one address, from npm. Everything is in its memory: queues and messages are gone when it stops. */
export const sqs: Service = {
  name: 'sqs',
  title: 'SQS/SNS (fauxqs)',
  variable: 'SQS_ENDPOINT',
  ports: { client: 4566 },
  install,
  environment: (port) => ({ SQS_ENDPOINT: `http://127.0.0.1:${port('client')}` }),
  check,
};

async function install(): Promise<Installed> {
  const manifest = await readFile(new URL('../node_modules/fauxqs/package.json', import.meta.url), 'utf8').catch(() => {
    throw new NotAvailable('the package fauxqs is not installed: npm install');
  });
  const server = fileURLToPath(new URL('sqs-server.mjs', import.meta.url));
  return {
    version: JSON.parse(manifest).version,
    async prepare({ port, settings }) {
      if (Object.keys(settings).length > 0) throw new Error('fauxqs has no settings.');
      return { program: process.execPath, args: [server, String(port('client'))] };
    },
  };
}

async function check(environment: Readonly<Record<string, string>>): Promise<undefined> {
  const response = await fetch(environment.SQS_ENDPOINT ?? '', {
    method: 'POST',
    headers: { 'content-type': 'application/x-amz-json-1.0', 'x-amz-target': 'AmazonSQS.ListQueues' },
    body: '{}',
    signal: AbortSignal.timeout(3_000),
  });
  const answer = await response.text();
  if (!response.ok) throw new Error(`ListQueues is answered with ${response.status} ${answer.slice(0, 200)}`);
}

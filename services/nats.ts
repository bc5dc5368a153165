import { writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { converse } from './conversation.ts';
import { unpackDebianPackage } from './debian-package.ts';
import { findProgram } from './run-command.ts';
import type { Installed, Report, Service } from './service.ts';

export const nats: Service = {
  name: 'nats',
  title: 'NATS',
  variable: 'NATS_URL',
  ports: { client: 4222 },
  install,
  environment: (port) => ({ NATS_URL: `nats://127.0.0.1:${port('client')}` }),
  check,
};

async function install(report: Report): Promise<Installed> {
  const { program, env } = await findServer(report);
  return {
    async prepare({ folder, port, settings }) {
      const configuration = {
        server_name: `postcommit-${port('client')}`,
        host: '127.0.0.1',
        port: String(port('client')),
        jetstream: `{ store_dir: "${join(folder, 'data')}", max_memory_store: 64MB, max_file_store: 8GB }`,
        ...settings,
      };
      const file = join(folder, 'nats.conf');
      const lines = Object.entries(configuration).map(([name, value]) => `${name}: ${value}\n`);
      await writeFile(file, lines.join(''), { mode: 0o600 });
      return { program, args: ['--config', file], env };
    },
  };
}

async function findServer(report: Report): Promise<{ program: string; env: Record<string, string> }> {
  const program = await findProgram('nats-server');
  if (program !== undefined) return { program, env: {} };
  const unpacked = await unpackDebianPackage({ package: 'nats-server' }, report);
  return {
    program: join(unpacked.root, 'usr', 'sbin', 'nats-server'),
    env: { LD_LIBRARY_PATH: unpacked.libraryFolders.join(delimiter) },
  };
}

/** The server speaks first, also to those it will not let in: INFO and what it can do. */
async function check(environment: Readonly<Record<string, string>>): Promise<string | undefined> {
  const url = new URL(environment.NATS_URL ?? '');
  const greeting = await converse(url.hostname, Number(url.port || 4222), (ask) =>
    ask('', (received) => received.includes('\r\n')),
  );
  const info = /^INFO (\{.*\})\s*\r\n/.exec(greeting.toString())?.[1];
  if (info === undefined) throw new Error('this is not a NATS server');
  const { version, jetstream } = JSON.parse(info);
  if (jetstream !== true) throw new Error(`NATS ${version} runs without JetStream`);
  return version;
}

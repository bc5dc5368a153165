import { mkdir, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { type Ask, converse } from './conversation.ts';
import { unpackDebianPackage } from './debian-package.ts';
import { findProgram } from './run-command.ts';
import type { Installed, Report, Service } from './service.ts';

export const redis: Service = {
  name: 'redis',
  title: 'Redis',
  variable: 'REDIS_URL',
  ports: { client: 6379 },
  install,
  environment: (port) => ({ REDIS_URL: `redis://127.0.0.1:${port('client')}` }),
  check,
};

async function install(report: Report): Promise<Installed> {
  const { program, env } = await findServer(report);
  return {
    async prepare({ folder, port, settings }) {
      const data = join(folder, 'data');
      await mkdir(data, { recursive: true });
      const configuration = {
        bind: '127.0.0.1',
        port: String(port('client')),
        dir: `"${data}"`,
        // Written before a command is answered, so that a killed server has everything when it comes back.
        appendonly: 'yes',
        save: '""',
        ...settings,
      };
      const file = join(folder, 'redis.conf');
      const lines = Object.entries(configuration).map(([name, value]) => `${name} ${value}\n`);
      await writeFile(file, lines.join(''), { mode: 0o600 });
      return { program, args: [file], env };
    },
  };
}

async function findServer(report: Report): Promise<{ program: string; env: Record<string, string> }> {
  const program = await findProgram('redis-server');
  if (program !== undefined) return { program, env: {} };
  // The program itself is in redis-tools, under its other name.
  const unpacked = await unpackDebianPackage({ package: 'redis-server', dependencies: /^redis-tools$/ }, report);
  return {
    program: join(unpacked.root, 'usr', 'bin', 'redis-server'),
    env: { LD_LIBRARY_PATH: unpacked.libraryFolders.join(delimiter) },
  };
}

async function check(environment: Readonly<Record<string, string>>): Promise<string | undefined> {
  const url = new URL(environment.REDIS_URL ?? '');
  return converse(url.hostname, Number(url.port || 6379), async (ask) => {
    if (url.password) await login(ask, url);
    const pong = await ask('PING\r\n', endsLine);
    // It works, only not for strangers: some tests want that.
    if (pong.toString().startsWith('-NOAUTH')) return undefined;
    if (pong.toString() !== '+PONG\r\n') throw new Error(`Redis answers PING with ${pong.toString().trim()}`);
    const about = await ask('INFO server\r\n', (received) => received.includes('redis_version:') && endsLine(received));
    return /redis_version:(\S+)/.exec(about.toString())?.[1];
  });
}

async function login(ask: Ask, url: URL): Promise<void> {
  const words = ['AUTH', decodeURIComponent(url.username) || 'default', decodeURIComponent(url.password)];
  const command = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`).join('');
  const answer = (await ask(`*${words.length}\r\n${command}`, endsLine)).toString();
  if (!answer.startsWith('+OK')) throw new Error(`Redis answers AUTH with ${answer.trim()}`);
}

function endsLine(received: Buffer): boolean {
  return received.toString().endsWith('\r\n');
}

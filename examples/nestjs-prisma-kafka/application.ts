import { spawn, spawnSync } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { copyPackage } from '../../scripts/built-package.ts';

const folder = fileURLToPath(new URL('./', import.meta.url));
const file = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export interface Application {
  url: string;
  /** Ends it as a platform would, and says how it ended. */
  stop(): Promise<string>;
}

/** What `npm install postcommit`, `npx prisma generate` and `npx tsc` do in a project of yours. */
export function buildApplication(): void {
  copyPackage(file('node_modules/postcommit'));
  // Prisma looks for its engine, which only migrations need.
  runNode(file('node_modules/prisma/build/index.js'), 'generate', { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath });
  runNode(file('../../node_modules/typescript/bin/tsc'), '--pretty', {});
  console.log('app      generated the Prisma client and compiled the Nest application');
}

export async function startApplication(env: Record<string, string>): Promise<Application> {
  const child = spawn(process.execPath, ['dist/server.js'], {
    cwd: folder,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const endWithParent = () => child.kill('SIGKILL');
  process.once('exit', endWithParent);
  const ended = new Promise<string>((resolve) => {
    child.once('close', (code, signal) => {
      process.removeListener('exit', endWithParent);
      resolve(signal === 'SIGTERM' ? 'stopped cleanly' : `ended with ${signal ?? code}`);
    });
  });
  const url = new Promise<string>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      const found = /^listening on (.*)/.exec(line)?.[1];
      if (found) resolve(found);
      else console.log(`app      ${line}`);
    });
  });
  const failed = ended.then((how) => Promise.reject(new Error(`the application ${how} before it listened`)));
  return {
    url: await Promise.race([url, failed]),
    async stop() {
      child.kill('SIGTERM');
      return ended;
    },
  };
}

function runNode(script: string, argument: string, env: Record<string, string>): void {
  const options = { cwd: folder, env: { ...process.env, ...env }, encoding: 'utf8' } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, argument], options);
  if (status !== 0) throw new Error(`${script} ${argument} failed:\n${stdout}${stderr}`);
}

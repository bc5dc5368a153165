import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Starts the delaying proxy in a process of its own, in front of this server. */
export async function startProxy(
  node: string,
  connectionString: string,
  delayMs: number,
): Promise<{ url: string; stop(): void }> {
  const url = new URL(connectionString);
  const target = { host: url.hostname, port: Number(url.port || 5432), delayMs };
  const child = fork(fileURLToPath(new URL('delaying-proxy.ts', import.meta.url)), [JSON.stringify(target)], {
    execPath: node,
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', process.stderr, process.stderr, 'ipc'],
  });
  const port = await new Promise<number>((resolve, reject) => {
    child.once('message', (message) => resolve((message as { port: number }).port));
    child.once('error', reject);
    child.once('exit', () => reject(new Error('The delaying proxy did not start.')));
  });
  url.hostname = '127.0.0.1';
  url.port = String(port);
  return { url: url.href, stop: () => child.disconnect() };
}

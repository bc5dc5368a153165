import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const workerFile = fileURLToPath(new URL('worker.ts', import.meta.url));

/** The workers of the story, by name. In production a process manager starts them. */
export class WorkerProcesses {
  readonly #databaseUrl: string;
  readonly #children = new Map<string, ChildProcess>();

  constructor(databaseUrl: string) {
    this.#databaseUrl = databaseUrl;
  }

  start(name: string, leaseMs: number): void {
    const env = {
      ...process.env,
      DATABASE_URL: this.#databaseUrl,
      WORKER_NAME: name,
      WORKER_LEASE_MS: String(leaseMs),
    };
    this.#children.set(name, fork(workerFile, { env }));
  }

  signal(name: string, signal: NodeJS.Signals): void {
    if (!this.#children.get(name)?.kill(signal)) throw new Error(`${name} does not run.`);
  }

  async stop(): Promise<void> {
    await Promise.all(
      [...this.#children.values()].map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, 'exit');
        child.kill('SIGCONT'); // It may be stopped, if the story failed there.
        child.kill('SIGTERM');
        await ended;
      }),
    );
  }
}

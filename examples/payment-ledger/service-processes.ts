import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

type Service = 'payments' | 'accounts';

/** The two services of the story. In production a process manager starts them, and starts them again. */
export class ServiceProcesses {
  readonly #env: Record<Service, NodeJS.ProcessEnv>;
  readonly #children = new Map<Service, ChildProcess>();

  constructor(env: Record<Service, NodeJS.ProcessEnv>) {
    this.#env = env;
  }

  start(service: Service): void {
    const file = fileURLToPath(new URL(`${service}.ts`, import.meta.url));
    this.#children.set(service, fork(file, { env: { ...process.env, ...this.#env[service] } }));
  }

  /** SIGKILL, in the middle of whatever it does, and a new process. */
  async crash(service: Service): Promise<void> {
    const child = this.#children.get(service);
    if (child === undefined || child.exitCode !== null) throw new Error(`${service} does not run.`);
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
    this.start(service);
  }

  async stop(): Promise<void> {
    await Promise.all(
      [...this.#children.values()].map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, 'exit');
        child.kill('SIGTERM');
        const tooLate = setTimeout(() => child.kill('SIGKILL'), stopMsMax);
        await ended;
        clearTimeout(tooLate);
      }),
    );
  }
}

const stopMsMax = 15_000;

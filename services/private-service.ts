import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runFolder } from './folders.ts';
import { startGuardian } from './guardian.ts';
import { type Instance, launch, launchOnFreePorts, portNumbers, type RunningInstance } from './instance.ts';
import { isGroupStopped, type ProcessIdentity } from './process-identity.ts';
import { services } from './registry.ts';
import { endServer, forgetPid, logFile, signalServer } from './server-process.ts';
import type { ServiceName } from './service.ts';

export interface PrivateServiceOptions {
  /** Added to the server's configuration file, in its own words, e.g. `{ 'message.max.bytes': '2000000' }`. */
  settings?: Record<string, string>;
}

/** A server of one's own, to stop and break at will. It ends with this process, however that ends. */
export interface PrivateService {
  readonly name: ServiceName;
  /** As people write it. */
  readonly title: string;
  readonly version: string | undefined;
  /** The port for clients, on 127.0.0.1. */
  readonly port: number;
  /** As the service's environment variable has it: a URL, for Kafka `host:port`. */
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
  readonly logFile: string;
  /** Same ports, same data (but for SQS and the schema registry, which have none). Nothing happens when it runs. */
  start(): Promise<void>;
  /** In good order. Nothing happens when it is stopped. */
  stop(): Promise<void>;
  /** SIGKILL: as in a crash. */
  kill(): Promise<void>;
  restart(): Promise<void>;
  /** It keeps its connections and accepts new ones, and answers nothing until thaw(). */
  freeze(): Promise<void>;
  thaw(): void;
  /** Ends it and removes its data. It cannot be started again. */
  remove(): Promise<void>;
}

/**
 * Starts a server beside the shared one, on free ports and with no data. Rejects with NotAvailable where this machine
 * cannot have it.
 *
 * @example
 * const redis = await startService('redis');
 * await redis.kill();
 * await redis.start(); // Same REDIS_URL, same data.
 * await redis.remove();
 */
export async function startService(name: ServiceName, options: PrivateServiceOptions = {}): Promise<PrivateService> {
  const service = services[name];
  const installed = await service.install(() => {});
  const folder = await mkdtemp(join(await runFolder(), `private-${name}-`));
  const guardian = startGuardian(folder);
  const end = async () => {
    await rm(folder, { recursive: true, force: true });
    guardian.release();
  };
  try {
    const settings = options.settings ?? {};
    return new RunningService(await launchOnFreePorts({ service, installed, folder, settings }, 'any'), end);
  } catch (error) {
    await end();
    throw error;
  }
}

class RunningService implements PrivateService {
  readonly name: ServiceName;
  readonly title: string;
  readonly version: string | undefined;
  readonly port: number;
  readonly url: string;
  readonly env: Readonly<Record<string, string>>;
  readonly folder: string;
  readonly logFile: string;
  readonly #instance: Instance;
  readonly #end: () => Promise<void>;
  #server: ProcessIdentity | undefined;
  #removed = false;
  /** One after the other, however they are called. */
  #turn: Promise<void> = Promise.resolve();

  constructor({ instance, server, version }: RunningInstance, end: () => Promise<void>) {
    const port = portNumbers(instance.ports);
    this.name = instance.service.name;
    this.title = instance.service.title;
    this.version = version;
    this.port = port('client');
    this.env = instance.service.environment(port);
    this.url = this.env[instance.service.variable] ?? '';
    this.folder = instance.folder;
    this.logFile = logFile(instance.folder);
    this.#instance = instance;
    this.#server = server;
    this.#end = end;
  }

  start(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#removed) throw new Error(`This ${this.title} was removed; start a new one.`);
      this.#server ??= (await launch(this.#instance)).server;
    });
  }

  stop(): Promise<void> {
    return this.#inTurn(() => this.#endWith('SIGTERM'));
  }

  kill(): Promise<void> {
    return this.#inTurn(() => this.#endWith('SIGKILL'));
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.start();
  }

  async freeze(): Promise<void> {
    if (this.#server === undefined) return;
    signalServer(this.#server, 'SIGSTOP');
    // A thread that is still running may answer.
    while (!(await isGroupStopped(this.#server.pid))) await sleep(5);
  }

  thaw(): void {
    if (this.#server) signalServer(this.#server, 'SIGCONT');
  }

  remove(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#removed) return;
      this.#removed = true;
      await this.#endWith('SIGKILL');
      await this.#end();
    });
  }

  async #endWith(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    if (this.#server === undefined) return;
    // One that is frozen would not notice that it is to stop.
    if (signal === 'SIGTERM') this.thaw();
    await endServer(this.#server, signal);
    await forgetPid(this.folder);
    this.#server = undefined;
  }

  #inTurn(work: () => Promise<void>): Promise<void> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => {});
    return result;
  }
}

import type { Worker } from 'node:worker_threads';
import type { ServerList } from '../../database/connection-string.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Service } from '../service/service.ts';
import type { HeartbeatOptions, Registration } from './heartbeat.ts';
import { Heartbeat } from './heartbeat.ts';
import { monotonicMs } from './lease-state.ts';
import { spawnWorker } from './spawn-worker.ts';
import type { FromThread, ThreadCall, ThreadData, ToThread } from './thread-messages.ts';
import { errorFields, errorOf } from './thread-messages.ts';
import { beatAgainShare, pulseMsMax, threadHeapMb } from './tuning.ts';

export interface HeartbeatThreadOptions extends HeartbeatOptions {
  /** Whether to use a thread. `false`: the heartbeat runs on the event loop of the relay. */
  heartbeatThread: boolean;
  /** When the event loop was blocked for this long, the relay counts as lost. */
  blockedMaxMs: number;
}

/**
 * The heartbeat on a worker thread, so that a handler that computes for longer than a lease does not lose its events. The
 * event loop shows through shared memory that it moves. When it has not moved for `blockedMaxMs`, the thread gives up lease and
 * lock, and another relay takes over.
 *
 * The heartbeat runs on the event loop instead where there is no thread: in a bundle, which lacks its file, with a connection config
 * that cannot be sent to it, and after the thread has crashed.
 */
export class HeartbeatThread implements Service {
  readonly #options: HeartbeatThreadOptions;
  #worker: Worker | undefined;
  /** Runs instead of the thread. */
  #local: Heartbeat | undefined;
  #registration: Registration | undefined;
  #isFileMissing = false;
  #pulse: NodeJS.Timeout | undefined;
  #calls = new Map<number, { resolve: () => void; reject: (error: Error) => void }>();
  #called = 0;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: HeartbeatThreadOptions) {
    this.#options = options;
  }

  /** Connects. Fails when that fails. */
  start(): Promise<void> {
    this.#starting ??= this.#stopping ? Promise.resolve() : this.#start();
    return this.#starting;
  }

  async #start(): Promise<void> {
    const { heartbeatThread } = this.#options;
    this.#worker = heartbeatThread ? this.#spawn() : undefined;
    if (this.#worker) {
      try {
        await this.#call({ call: 'start' });
        return;
      } catch (error) {
        if (this.#worker || this.#stopping) throw error; // The thread runs and cannot connect.
      }
    }
    await (this.#local ?? this.#useLocal()).start();
  }

  keepAlive(registration: Registration): Promise<void> {
    this.#registration = registration;
    // Not before: a relay that cannot use its database reports only that.
    if (this.#isFileMissing) {
      this.#isFileMissing = false;
      this.#options.logger.info({}, 'heartbeat worker file not found, running the heartbeat on the event loop');
    }
    if (this.#local) return this.#local.keepAlive(registration);
    // If the thread ends meanwhile, its replacement keeps the registration alive.
    return this.#call({ call: 'keepAlive', registration }).catch((error) => {
      if (!this.#local) throw error;
    });
  }

  drop(): void {
    this.#registration = undefined;
    this.#options.leaseState.suspended();
    this.#tell({ tell: 'drop' });
    this.#local?.drop();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    clearInterval(this.#pulse);
    this.#registration = undefined;
    const worker = this.#worker;
    await this.#local?.stop();
    if (!worker) return;
    await this.#call({ call: 'stop' }).catch(() => {});
    await worker.terminate();
  }

  #useLocal(): Heartbeat {
    this.#local = new Heartbeat(this.#options);
    return this.#local;
  }

  #spawn(): Worker | undefined {
    const { servers, schema, name, leaseMs, sessionLock, hostId, leaseState, blockedMaxMs, logger } = this.#options;
    const asksForPassword = servers.servers.some(({ config }) => typeof config.password === 'function');
    const data: ThreadData = {
      ...{ schema, name, leaseMs, sessionLock, hostId, blockedMaxMs, asksForPassword },
      servers: asksForPassword ? withoutPasswords(servers) : servers,
      memory: leaseState.memory,
    };
    try {
      leaseState.moved(monotonicMs());
      const worker = spawnWorker({ workerData: data, resourceLimits: { maxOldGenerationSizeMb: threadHeapMb } });
      this.#isFileMissing = !worker;
      if (!worker) return undefined;
      worker.on('message', (message: FromThread) => this.#receive(message));
      worker.on('error', (error) => this.#crashed(worker, error));
      worker.on('exit', (code) => this.#crashed(worker, new Error(`it ended with code ${code}`)));
      worker.unref(); // The relay's connections keep the process alive, or nothing does.
      const pulseMs = Math.min(pulseMsMax, blockedMaxMs / 4, leaseMs * beatAgainShare);
      this.#pulse = setInterval(() => this.#sendPulse(), pulseMs).unref();
      return worker;
    } catch (error) {
      // A connection config with functions, such as `stream`, cannot be sent.
      logger.warn(
        { error: errorText(error) },
        'heartbeat worker did not start, running the heartbeat on the event loop',
      );
      return undefined;
    }
  }

  /** Shows that the event loop moves, and what the relay has done: often, so that the next renewal writes it. */
  #sendPulse(): void {
    this.#options.leaseState.moved(monotonicMs());
    this.#tell({ tell: 'report', stats: this.#options.stats() });
  }

  #crashed(worker: Worker, error: Error): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    clearInterval(this.#pulse);
    if (!this.#stopping) {
      this.#options.leaseState.suspended();
      this.#options.logger.warn(
        { error: errorText(error) },
        'heartbeat worker failed, running the heartbeat on the event loop',
      );
      const registration = this.#registration;
      // Before the calls are rejected: keepAlive() looks for the replacement. Also without a registration, for the next one.
      const local = this.#useLocal();
      if (registration) local.keepAlive(registration).catch(() => {});
    }
    for (const { reject } of this.#calls.values())
      reject(new Error('the heartbeat thread has ended', { cause: error }));
    this.#calls.clear();
  }

  #tell(message: ToThread): void {
    this.#worker?.postMessage(message);
  }

  #call(call: ThreadCall): Promise<void> {
    const worker = this.#worker;
    if (!worker) return Promise.reject(new Error('the heartbeat thread has ended'));
    const number = ++this.#called;
    worker.ref(); // Until it has answered.
    return new Promise<void>((resolve, reject) => {
      this.#calls.set(number, { resolve, reject });
      this.#tell({ ...call, number });
    }).finally(() => {
      if (this.#calls.size === 0) worker.unref();
    });
  }

  #receive(message: FromThread): void {
    const { onLost, onRelayLost, onDisconnected, logger } = this.#options;
    if (message.tell === 'done') {
      const call = this.#calls.get(message.number);
      this.#calls.delete(message.number);
      if (message.error) call?.reject(errorOf(message.error));
      else call?.resolve();
    } else if (message.tell === 'lost') onLost(message.token);
    else if (message.tell === 'relayLost') onRelayLost(message.relay);
    else if (message.tell === 'disconnected') onDisconnected(message.error);
    else if (message.tell === 'log') logger[message.level](message.fields, message.message);
    else void this.#sendPassword(message.number, message.server);
  }

  async #sendPassword(number: number, server: number): Promise<void> {
    const ask = this.#options.servers.servers[server]?.config.password;
    try {
      const password = typeof ask === 'function' ? await ask() : ask;
      this.#tell({ tell: 'password', number, password: password ?? '' });
    } catch (error) {
      this.#tell({ tell: 'password', number, error: errorFields(error) });
    }
  }
}

function withoutPasswords({ servers, attributes }: ServerList): ServerList {
  return {
    attributes,
    servers: servers.map(({ address, config: { password: _left, ...config } }) => ({ address, config })),
  };
}

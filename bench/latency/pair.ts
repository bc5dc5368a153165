import pg from 'pg';
import type { Contender, Target } from '../contenders/contender.ts';
import { createOrdersSql } from '../contenders/orders.ts';
import { fill } from '../drain-processes.ts';
import type { Note } from '../run-child.ts';
import { forkChild } from '../run-child.ts';
import type { Server } from '../server.ts';
import type { EmitterReport, EmitterTask, Turn } from './emitter.ts';
import type { WorkerReport, WorkerTask } from './worker.ts';

export interface PairOptions {
  node: string;
  server: Server;
  /** The pair's database, made for it and dropped after it. */
  database: string;
  contender: Contender;
  target: Omit<Target, 'connectionString'>;
  /** All that will be emitted: the worker ends when it has handled so many. */
  orders: number;
  timeoutMs: number;
  interrupted: AbortSignal;
}

/** An emitter and a worker of one contender, two processes, with a database of their own. */
export class Pair {
  readonly #options: PairOptions;
  /** If one fails the other would wait for ever. */
  readonly #failed = new AbortController();
  #worker: Promise<WorkerReport> | undefined;
  #emitter: Promise<EmitterReport> | undefined;
  #tellEmitter: ((turn: Turn) => void) | undefined;
  #onEmitted: (() => void) | undefined;

  constructor(options: PairOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { node, server, contender, interrupted } = this.#options;
    const target: Target = {
      ...this.#options.target,
      connectionString: await server.createDatabase(this.#options.database),
    };
    await fill(node, contender, target, interrupted);
    const db = new pg.Client({ connectionString: target.connectionString });
    try {
      await db.connect();
      await db.query(createOrdersSql);
      await db.query('checkpoint'); // The next one is minutes away.
    } finally {
      await db.end();
    }
    const worker: WorkerTask = { contender: contender.name, target, orders: this.#options.orders };
    await new Promise<void>((ready, reject) => {
      this.#worker = this.#run<WorkerReport>('worker.ts', worker, () => ready());
      this.#worker.catch(reject);
    });
    const emitter: EmitterTask = { contender: contender.name, target };
    await new Promise<void>((ready, reject) => {
      this.#emitter = this.#run<EmitterReport>('emitter.ts', emitter, ({ note }, answer) => {
        this.#tellEmitter = answer as (turn: Turn) => void;
        if (note === 'ready') ready();
        else this.#onEmitted?.();
      });
      this.#emitter.catch(reject);
    });
  }

  /** Resolves when all of them are committed. Without a rate, one right after the other. */
  async emit(turn: Turn): Promise<void> {
    const emitted = new Promise<void>((resolve) => {
      this.#onEmitted = resolve;
    });
    this.#tellEmitter?.(turn);
    await Promise.race([emitted, ...this.#both()]);
  }

  /** What both saw, once the worker has handled all there is. */
  async finish(): Promise<[WorkerReport, EmitterReport]> {
    this.#tellEmitter?.({ orders: 0 });
    return Promise.all(this.#both());
  }

  async close(): Promise<void> {
    this.#failed.abort();
    await Promise.allSettled(this.#both());
    await this.#options.server.dropDatabase(this.#options.database);
  }

  #both(): [Promise<WorkerReport>, Promise<EmitterReport>] {
    return [this.#worker as Promise<WorkerReport>, this.#emitter as Promise<EmitterReport>];
  }

  async #run<Report>(
    file: string,
    task: object,
    onNote: (note: Note, answer: (message: Turn) => void) => void,
  ): Promise<Report> {
    const { node, contender, timeoutMs, interrupted } = this.#options;
    try {
      return (await forkChild(node, new URL(file, import.meta.url), task, {
        what: `${contender.name} ${file}`,
        timeoutMs,
        interrupted: AbortSignal.any([interrupted, this.#failed.signal]),
        onNote: (note, answer) => onNote(note, (turn) => answer({ ...turn })),
      })) as Report;
    } catch (error) {
      // The other one ends with an AbortError: whichever is seen first, the cause is what is told.
      this.#failed.abort(error);
      throw this.#failed.signal.reason;
    }
  }
}

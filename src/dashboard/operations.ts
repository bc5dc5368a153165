import type { BulkOptions } from '../admin/chunks.ts';
import { IncompleteReplay } from '../admin/incomplete-replay.ts';
import { PostcommitError } from '../errors.ts';

/** A long operation that a request has started. */
export interface RunningOperation {
  id: string;
  outbox: string;
  action: string;
  by: string;
  state: 'running' | 'done' | 'failed' | 'interrupted';
  /** Events changed so far. */
  count: number;
  error?: { code: string; message: string };
  /** Of a replay that did not get to its end: to continue it, send this as `after` with the same target. */
  next?: string;
}

const runningMax = 4;
const keptMax = 50;

/** Runs long operations in the background and remembers the last fifty. */
export class Operations {
  readonly #operations = new Map<string, RunningOperation>();
  readonly #stops = new Map<string, AbortController>();
  readonly #describe: (error: unknown) => { code: string; message: string };
  #number = 0;

  constructor(describe: (error: unknown) => { code: string; message: string }) {
    this.#describe = describe;
  }

  /** Starts `work`. Refuses a fifth one at a time: each keeps a connection busy. */
  start(
    facts: Pick<RunningOperation, 'outbox' | 'action' | 'by'>,
    work: (options: BulkOptions) => Promise<{ count: number; interrupted?: true; next?: string }>,
  ): RunningOperation {
    if (this.#stops.size >= runningMax) {
      throw new PostcommitError('POSTCOMMIT_E_TOO_MANY_OPERATIONS');
    }
    const operation: RunningOperation = { id: String(++this.#number), ...facts, state: 'running', count: 0 };
    const stop = new AbortController();
    this.#operations.set(operation.id, operation);
    this.#stops.set(operation.id, stop);
    const [oldest] = this.#operations.keys();
    if (this.#operations.size > keptMax && oldest !== undefined) this.#operations.delete(oldest);
    const onProgress = (count: number) => {
      operation.count = count;
    };
    void work({ signal: stop.signal, onProgress })
      .then(({ count, interrupted, next }) =>
        Object.assign(operation, { count, state: interrupted ? 'interrupted' : 'done', ...(next && { next }) }),
      )
      .catch((error) => {
        const next = error instanceof IncompleteReplay ? { next: error.next } : {};
        Object.assign(operation, { state: 'failed', error: this.#describe(error), ...next });
      })
      .finally(() => this.#stops.delete(operation.id));
    return operation;
  }

  find(id: string): RunningOperation | undefined {
    return this.#operations.get(id);
  }

  /** Stops it after its current chunk. What it has changed stays. */
  interrupt(id: string): void {
    this.#stops.get(id)?.abort();
  }

  close(): void {
    for (const stop of this.#stops.values()) stop.abort();
  }
}

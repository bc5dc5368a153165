import type { Writable } from 'node:stream';
import { PostcommitError } from '../errors.ts';

type Listener = (error: Error) => void;

/**
 * Watches stdout and stderr for failed writes: the reader of the pipe has ended, the disk is full, the terminal is closed.
 * Meanwhile a failed write does not end the process; the command ends it after it has released its events.
 */
export class OutputWatch {
  readonly #streams: { name: string; stream: Writable; own: Listener; others: Listener[] }[];
  #fail: (error: PostcommitError) => void = () => {};
  #error: PostcommitError | undefined;
  /** Resolves with the first failure. */
  readonly failed: Promise<PostcommitError>;

  constructor({ stdout, stderr }: { stdout: Writable; stderr: Writable }) {
    this.failed = new Promise((resolve) => {
      this.#fail = resolve;
    });
    this.#streams = Object.entries({ stdout, stderr }).map(([name, stream]) => {
      const own = (error: Error) => this.#receive(name, error);
      const others = stream.listeners('error') as Listener[];
      stream.removeAllListeners('error').on('error', own);
      return { name, stream, own, others };
    });
  }

  /** The first failure so far. */
  get error(): PostcommitError | undefined {
    return this.#error;
  }

  /** Resolves when all output is written, or has failed. */
  async flush(): Promise<void> {
    await Promise.all(
      this.#streams.map(
        ({ name, stream }) =>
          new Promise<void>((done) => {
            stream.write('', (error) => {
              if (error) this.#receive(name, error);
              done();
            });
          }),
      ),
    );
  }

  /** Restores the listeners that were there before. */
  close(): void {
    for (const { stream, own, others } of this.#streams) {
      stream.off('error', own);
      for (const other of others) stream.on('error', other);
    }
  }

  #receive(name: string, cause: Error): void {
    this.#error ??= new PostcommitError('POSTCOMMIT_E_OUTPUT_FAILED', `${name}: ${cause.message}`, { cause });
    this.#fail(this.#error);
  }
}

import { isRefusedValue } from '../../database/database-error.ts';
import type { Executor } from '../../database/executor.ts';
import { toAscii } from '../../database/storable-text.ts';
import type { WrittenProgress } from '../../outbox/delivering/write-progress.ts';
import { clearProgress, writeProgress } from '../../outbox/delivering/write-progress.ts';
import { errorText } from '../../telemetry/error-text.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import type { Service } from '../service/service.ts';

/** What one handler call reported last. The call changes it in place. */
export interface ProgressReport {
  readonly seq: string;
  readonly handler: string;
  readonly attempt: number;
  fraction: number;
  note: string | undefined;
}

export interface ProgressWriterOptions {
  schema: string;
  db: Executor;
  logger: Logger;
  /** The fencing token; empty without a lease, and then nothing is written. */
  token: () => string;
}

/** The pause between two writes. */
const writeEveryMs = 1_000;
/** Reports per statement. The others wait for the next one. */
const reportsMax = 1_000;
const noteCharactersMax = 500;

/**
 * Writes what handlers report about their work: one statement per second at most, with the last report of each call,
 * however often they report. The first report after a pause is written immediately. Reports are for operators: no delivery
 * waits for them, and one that cannot be written is replaced by the next.
 */
export class ProgressWriter implements Service {
  readonly #options: ProgressWriterOptions;
  readonly #log = new SparseLog();
  #changed = new Set<ProgressReport>();
  #ended = new Set<ProgressReport>();
  /** Reports of calls in flight that may be in the database. */
  readonly #written = new Set<ProgressReport>();
  #hasWritten = false;
  #lastWriteAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;
  #stopped = false;

  constructor(options: ProgressWriterOptions) {
    this.#options = options;
  }

  /** Nothing to do: the first report starts it. */
  async start(): Promise<void> {}

  /** Writes nothing more, and deletes what this relay has written. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#changed.clear();
    this.#ended.clear();
    await this.#writing;
    const { db, schema, token } = this.#options;
    if (!this.#hasWritten || token() === '') return;
    this.#hasWritten = false;
    // If this fails, maintenance deletes them.
    await clearProgress(db, schema, token()).catch(() => {});
  }

  /** A handler has reported. */
  changed(report: ProgressReport): void {
    if (this.#stopped || this.#changed.has(report)) return;
    this.#changed.add(report);
    this.#schedule();
  }

  /** The call has ended: its report is deleted, if it was written. */
  ended(report: ProgressReport): void {
    this.#changed.delete(report);
    if (this.#stopped || !this.#written.delete(report)) return;
    this.#ended.add(report);
    this.#schedule();
  }

  #schedule(): void {
    if (this.#stopped || this.#timer !== undefined || this.#writing !== undefined) return;
    if (this.#changed.size + this.#ended.size === 0) return;
    const waitMs = Math.max(0, this.#lastWriteAt + writeEveryMs - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#lastWriteAt = performance.now();
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined;
        this.#schedule();
      });
    }, waitMs).unref();
  }

  async #write(): Promise<void> {
    const { token, logger } = this.#options;
    if (token() === '') return;
    const reports = take(this.#changed, reportsMax);
    // A later call of the same handler with the same event replaces the row.
    const replaced = new Set(reports.map(({ seq, handler }) => `${seq}:${handler}`));
    const ended = take(this.#ended, reportsMax).filter(({ seq, handler }) => !replaced.has(`${seq}:${handler}`));
    // Before the statement: if its answer is lost, it may have been executed.
    for (const report of reports) this.#written.add(report);
    this.#hasWritten = true;
    try {
      await this.#store(token(), reports.map(toWritten), ended);
    } catch (error) {
      for (const report of reports) if (this.#written.has(report)) this.#changed.add(report);
      for (const report of ended) this.#ended.add(report);
      this.#log.say('progress', (suppressed) =>
        logger.warn({ suppressed, error: errorText(error) }, 'cannot write the progress of handlers, retrying'),
      );
    }
  }

  async #store(token: string, reports: WrittenProgress[], ended: readonly ProgressReport[]): Promise<void> {
    const { db, schema } = this.#options;
    const names = ended.map(({ seq, handler }) => ({ seq, handler }));
    try {
      await writeProgress(db, schema, token, reports, names);
    } catch (error) {
      if (!isRefusedValue(error)) throw error;
      // The database's encoding lacks a character of a note.
      const plain = reports.map((report) => ({ ...report, note: report.note === null ? null : toAscii(report.note) }));
      await writeProgress(db, schema, token, plain, names);
    }
  }
}

function take(from: Set<ProgressReport>, max: number): ProgressReport[] {
  const taken: ProgressReport[] = [];
  for (const report of from) {
    if (taken.length === max) break;
    taken.push(report);
    from.delete(report);
  }
  return taken;
}

function toWritten({ seq, handler, attempt, fraction, note }: ProgressReport): WrittenProgress {
  return { seq, handler, attempt, fraction, note: note === undefined ? null : storable(note) };
}

/** PostgreSQL cannot store NUL, and cutting by code unit can leave half of a surrogate pair. */
function storable(note: string): string {
  return note.slice(0, noteCharactersMax).replaceAll('\0', '\uFFFD').toWellFormed();
}

/**
 * Where Postcommit writes its log. A pino logger fits as it is. Nothing is logged unless one is given.
 */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = () => {};
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** One JSON object per line, as log collectors read it. */
export function jsonLogger(write: (line: string) => void, minimum: keyof Logger = 'info'): Logger {
  const levels: (keyof Logger)[] = ['debug', 'info', 'warn', 'error'];
  const at = (level: keyof Logger) =>
    levels.indexOf(level) < levels.indexOf(minimum)
      ? ignore
      : (fields: object, message: string) =>
          write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...fields })}\n`);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** Kinds may carry names from outside (an event type), so their number is bounded too. */
const kindsMax = 1_000;
const otherKinds = 'other kinds';

/**
 * Lets a repeated message through at most once per interval and says how many were left out: an outage that fails
 * thousands of times must not fill the disk with its log.
 */
export class SparseLog {
  readonly #intervalMs: number;
  /** Oldest first. */
  readonly #seen = new Map<string, { at: number; suppressed: number }>();

  constructor(intervalMs = 10_000) {
    this.#intervalMs = intervalMs;
  }

  /** Calls `write` with the number of messages of this kind left out since the last one, if it is time. */
  say(kind: string, write: (suppressed: number) => void): void {
    const now = performance.now();
    const bounded = this.#bounded(kind, now);
    const last = this.#seen.get(bounded);
    if (last && now - last.at < this.#intervalMs) {
      last.suppressed++;
      return;
    }
    this.#seen.delete(bounded);
    this.#seen.set(bounded, { at: now, suppressed: 0 });
    write(last?.suppressed ?? 0);
  }

  /** The kind itself while there is room; beyond that, all that are new share one. */
  #bounded(kind: string, now: number): string {
    if (this.#seen.has(kind) || this.#seen.size < kindsMax) return kind;
    for (const [old, { at }] of this.#seen) {
      if (now - at < this.#intervalMs) break;
      this.#seen.delete(old);
    }
    return this.#seen.size < kindsMax ? kind : otherKinds;
  }
}

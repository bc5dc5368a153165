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

/**
 * Lets a repeated message through at most once per interval and says how many were left out: an outage that fails
 * thousands of times must not fill the disk with its log.
 */
export class SparseLog {
  readonly #intervalMs: number;
  readonly #seen = new Map<string, { at: number; suppressed: number }>();

  constructor(intervalMs = 10_000) {
    this.#intervalMs = intervalMs;
  }

  /** Calls `write` with the number of messages of this kind left out since the last one, if it is time. */
  say(kind: string, write: (suppressed: number) => void): void {
    const now = performance.now();
    const last = this.#seen.get(kind);
    if (last && now - last.at < this.#intervalMs) {
      last.suppressed++;
      return;
    }
    // Kinds may carry names from outside (an event type), so their number is bounded too.
    if (!last && this.#seen.size >= 1_000) this.#seen.clear();
    this.#seen.set(kind, { at: now, suppressed: 0 });
    write(last?.suppressed ?? 0);
  }
}

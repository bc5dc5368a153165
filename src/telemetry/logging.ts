import { callSafely } from './call-safely.ts';
import { errorText } from './error-text.ts';
import { redact } from './redaction.ts';

/** Receives the log of a relay. A pino logger has this interface. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const ignore = () => {};
export const silentLogger: Logger = { debug: ignore, info: ignore, warn: ignore, error: ignore };

/** Adds these fields to every line. */
export function withFields(logger: Logger, fields: object): Logger {
  return {
    debug: (more, message) => logger.debug({ ...fields, ...more }, message),
    info: (more, message) => logger.info({ ...fields, ...more }, message),
    warn: (more, message) => logger.warn({ ...fields, ...more }, message),
    error: (more, message) => logger.error({ ...fields, ...more }, message),
  };
}

/** Formats one line of a log, without its end. */
export type LineFormat = (level: keyof Logger, message: string, fields: object) => string;

/** Writes one line each, from the level `minimum` on. */
export function lineLogger(format: LineFormat, write: (line: string) => void, minimum: keyof Logger = 'info'): Logger {
  const levels: (keyof Logger)[] = ['debug', 'info', 'warn', 'error'];
  const at = (level: keyof Logger) =>
    levels.indexOf(level) < levels.indexOf(minimum)
      ? ignore
      : (fields: object, message: string) => write(`${format(level, message, fields)}\n`);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** One JSON object. */
export const jsonLine: LineFormat = (level, message, fields) =>
  JSON.stringify({ time: new Date().toISOString(), level, message, ...fields });

/** Writes one JSON object per line. */
export function jsonLogger(write: (line: string) => void, minimum: keyof Logger = 'info'): Logger {
  return lineLogger(jsonLine, write, minimum);
}

/**
 * The log of a relay that was given none: warnings and errors, on standard error. With `console`, which ignores a standard error
 * that is closed: the stream itself would end the process.
 */
export const stderrLogger: Logger = jsonLogger((line) => console.error(redact(line.trimEnd())), 'warn');

/** The logger to use for this option, safe to call anywhere: `false` logs nowhere. `fail` makes the error of a value that is not a logger. */
export function resolveLogger(given: Logger | false | undefined, fail: (detail: string) => Error): Logger {
  const logger = given === false ? silentLogger : (given ?? stderrLogger);
  for (const level of ['debug', 'info', 'warn', 'error'] as const) {
    if (typeof logger?.[level] !== 'function')
      throw fail(`logger must be false, or have a function ${level}, as pino's has.`);
  }
  return guardedLogger(logger);
}

/**
 * The same logger, safe to call anywhere: what it throws, and the rejection of a promise that it returns, changes nothing. The relay
 * logs between the steps of a delivery, so one throw, e.g. of a transport whose thread has ended, stopped a lane or left events
 * claimed. The failure is written to stderr, at most once in ten seconds.
 */
function guardedLogger(logger: Logger): Logger {
  const log = new SparseLog();
  const report = (error: unknown) =>
    log.say('logger', (suppressed) => {
      try {
        stderrLogger.error({ suppressed, error: errorText(error) }, 'the logger failed, the line is lost');
      } catch {} // Nowhere is left to write to.
    });
  const at = (level: keyof Logger) => (fields: object, message: string) =>
    callSafely(() => logger[level](fields, message), report);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** Kinds can contain external names (an event type), so their number is limited too. */
const kindsMax = 1_000;
const otherKinds = 'other kinds';

/**
 * Logs a repeated message at most once per interval, with the number of suppressed ones: an outage with thousands of failures
 * must not fill the disk.
 */
export class SparseLog {
  readonly #intervalMs: number;
  /** Oldest first. */
  readonly #seen = new Map<string, { at: number; suppressed: number }>();

  constructor(intervalMs = 10_000) {
    this.#intervalMs = intervalMs;
  }

  /** Calls `write`, with the number of messages of this kind suppressed since the last call, at most once per interval. */
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

  /** The kind itself below the limit. Above it, all new kinds share one. */
  #bounded(kind: string, now: number): string {
    if (this.#seen.has(kind) || this.#seen.size < kindsMax) return kind;
    for (const [old, { at }] of this.#seen) {
      if (now - at < this.#intervalMs) break;
      this.#seen.delete(old);
    }
    return this.#seen.size < kindsMax ? kind : otherKinds;
  }
}

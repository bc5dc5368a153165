import type { OutboxAdmin } from '../../admin/admin.ts';
import type { Relay } from '../../relay/relay.ts';
import type { RelayRunner } from './relay-runner.ts';

/** When the outbox counts as unhealthy, beside a relay that does not run. Default: no limits, and the database is not asked. */
export interface HealthLimits {
  /** The oldest due event has been due for longer, in milliseconds. An outage of a destination shows here. */
  oldestPendingMsMax?: number;
  /** More dead letters wait for an operator. */
  deadLettersMax?: number;
  /** An answer of the database that takes longer, in milliseconds, counts as none. Default 5,000. */
  timeoutMs?: number;
}

/** One indicator's part of a health check, as Terminus has it. */
export type HealthResult<Key extends string = string> = Record<
  Key,
  { status: 'up' | 'down' } & Record<string, unknown>
>;

/**
 * A health indicator for `@nestjs/terminus` 10 to 12: down when this process should run a relay and it does not, or it has lost its
 * connections.
 *
 * @example
 * import type { PostcommitHealthIndicator } from 'postcommit/nestjs';
 *
 * async function check(health: { check(list: (() => Promise<object>)[]): unknown }, outbox: PostcommitHealthIndicator) {
 *   return health.check([() => outbox.isHealthy('outbox', { oldestPendingMsMax: 60_000 })]);
 * }
 */
export class PostcommitHealthIndicator {
  readonly #relay: Relay;
  readonly #admin: OutboxAdmin;
  readonly #runner: Partial<RelayRunner>;

  constructor(relay: Relay, admin: OutboxAdmin, runner: Partial<RelayRunner>) {
    this.#relay = relay;
    this.#admin = admin;
    this.#runner = runner;
  }

  async isHealthy<Key extends string>(key: Key, limits: HealthLimits = {}): Promise<HealthResult<Key>> {
    const { problems, ...facts } = await this.#examine(limits);
    const status = problems.length === 0 ? 'up' : 'down';
    const result = { [key]: { status, ...facts, ...(status === 'down' && { message: problems.join('; ') }) } };
    if (status === 'down') await throwForTerminus10(result, problems);
    return result as HealthResult<Key>;
  }

  async #examine(limits: HealthLimits): Promise<{ problems: string[] } & Record<string, unknown>> {
    const { oldestPendingMsMax, deadLettersMax, timeoutMs = 5_000 } = limits;
    const { state, connected, inFlight } = this.#relay.stats();
    const problems: string[] = [];
    if (this.#runner.isEnabled) {
      if (state !== 'running') problems.push(`the relay is ${state}`);
      else if (!connected) problems.push('the relay has lost its connections to the database');
    }
    if (oldestPendingMsMax === undefined && deadLettersMax === undefined) return { problems, relay: state, inFlight };
    let timer: NodeJS.Timeout | undefined;
    try {
      const late = new Promise<never>((_, reject) => {
        timer = setTimeout(() => reject(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
      });
      const limits = {
        ...(oldestPendingMsMax !== undefined && { oldestPendingMsMax }),
        ...(deadLettersMax !== undefined && { deadLettersMax }),
      };
      const { reasons, oldestPendingMs, deadLetters } = await Promise.race([this.#admin.health(limits), late]);
      return { problems: [...problems, ...reasons], relay: state, inFlight, oldestPendingMs, deadLetters };
    } catch (error) {
      problems.push(`the database: ${(error as Error).message}`);
      return { problems, relay: state, inFlight };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Terminus 10 takes every result as healthy that is returned, and 12 every error that is thrown as a fault of the check itself. */
async function throwForTerminus10(causes: object, problems: readonly string[]): Promise<void> {
  // A name that bundlers do not follow: Terminus is optional.
  const terminus: string = '@nestjs/terminus';
  const loaded = (await import(terminus).catch(() => ({}))) as Record<string, unknown>;
  if ('HealthIndicatorService' in loaded || !('HealthCheckError' in loaded)) return;
  throw Object.assign(new Error(problems.join('; ')), { isHealthCheckError: true, causes });
}

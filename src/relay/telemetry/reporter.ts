import type { ClaimedRow } from '../../outbox/delivering/claim.ts';
import type { LostRelay } from '../../outbox/delivering/declare-relays-lost.ts';
import type { TargetError } from '../../outbox/delivering/fail.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { SparseLog } from '../../telemetry/logging.ts';
import { type EventFacts, factsOf, logFields } from '../event/event-facts.ts';
import { isBlocking, type SettleEntry } from '../settle/transition.ts';
import type { Counters } from './counters.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { RelayMeter } from './relay-meter.ts';

/** Reports what happened: counters, lifecycle events, and a log line for what went wrong. */
export class Reporter {
  readonly #lifecycle: Lifecycle;
  readonly #logger: Logger;
  readonly #counters: Counters;
  readonly #meter: RelayMeter | undefined;
  readonly #log = new SparseLog(1_000);

  constructor(lifecycle: Lifecycle, logger: Logger, counters: Counters, meter?: RelayMeter) {
    this.#lifecycle = lifecycle;
    this.#logger = logger;
    this.#counters = counters;
    this.#meter = meter;
  }

  claimed(queue: string, rows: readonly ClaimedRow[], tookMs: number): void {
    let takenOver = 0;
    for (const row of rows) if (row.takenOver) takenOver++;
    this.#counters.claimed += rows.length;
    this.#counters.takenOver += takenOver;
    this.#meter?.claimed(queue, rows, { takenOver, tookMs });
    if (this.#lifecycle.wants('claimed')) this.#lifecycle.tell('claimed', { queue, count: rows.length, takenOver });
  }

  /** The outcome of an event is durable. */
  settled(entry: SettleEntry, fenced: boolean): void {
    this.#meter?.settled(entry, fenced);
    if (fenced) {
      this.#counters.fenced++;
      this.#lifecycle.tell('fenced', factsOf(entry.event));
      const message = 'result came too late: another relay owns the event, or it was cancelled';
      this.#say('warn', 'fenced', factsOf(entry.event), message);
      return;
    }
    this.#counters[entry.kind]++;
    const { event } = entry;
    switch (entry.kind) {
      case 'delivered':
        if (!this.#lifecycle.wants('delivered')) return;
        this.#lifecycle.tell('delivered', {
          ...factsOf(event),
          targets: entry.settlement.targets,
          latencyMs: Date.now() - event.createdAtMs,
        });
        return;
      case 'released':
        if (this.#lifecycle.wants('released')) this.#lifecycle.tell('released', factsOf(event));
        return;
      case 'unavailable': {
        const { waitsFor } = entry.failure;
        if (this.#lifecycle.wants('unavailable')) this.#lifecycle.tell('unavailable', { ...factsOf(event), waitsFor });
        return;
      }
      case 'failed': {
        const { delayMs, errors } = entry.failure;
        const { error, target, stack } = lastOf(errors);
        this.#lifecycle.tell('failed', { ...factsOf(event), delayMs, error, target });
        const fields = { ...factsOf(event), delayMs, error, target, ...stack };
        this.#say('warn', `failed:${event.type}`, fields, 'delivery failed, will retry');
        return;
      }
      default: {
        const { reason, errors } = entry.failure;
        const { error, target, stack } = lastOf(errors);
        const blocking = isBlocking(entry);
        this.#lifecycle.tell('deadLettered', { ...factsOf(event), reason, error, blocking });
        const fields = { ...factsOf(event), target, reason, blocking, error, ...stack };
        this.#say('error', `dead:${event.type}`, fields, 'event is a dead letter');
      }
    }
  }

  /** The delivery of an event that was cancelled meanwhile has ended. */
  cancelled(row: ClaimedRow): void {
    this.#counters.cancelled++;
    this.#meter?.cancelled(row);
    this.#lifecycle.tell('cancelled', factsOf(row));
    this.#say('info', 'cancelled', factsOf(row), 'event was cancelled, its delivery has ended');
  }

  notificationsLost(silentMs: number): void {
    this.#lifecycle.tell('notificationsLost', { silentMs });
    this.#logger.warn(
      { silentMs },
      'LISTEN receives no notifications, polling instead; behind a pooler set listen: false',
    );
  }

  relayLost(lost: LostRelay): void {
    this.#lifecycle.tell('relayLost', lost);
    this.#logger.warn({ ...lost }, 'another relay was lost, taking over its events');
  }

  leaseLost(relay: string, token: string): void {
    this.#lifecycle.tell('leaseLost', { relay, token });
    this.#logger.error({ relay }, 'lease lost, dropping all claimed events and registering again');
  }

  /** One line per kind and second: a broken handler, or an operator, may concern thousands of events. */
  #say(level: keyof Logger, kind: string, fields: EventFacts, message: string): void {
    this.#log.say(kind, (suppressed) => this.#logger[level]({ ...logFields(fields), suppressed }, message));
  }
}

/** The error that decided, and the target that it came from. `stack`: the field of the log line, if there is one. */
function lastOf(errors: readonly TargetError[]): { error: string; target: string | null; stack: { stack?: string } } {
  const { error = '', target = null, stack } = errors.at(-1) ?? {};
  return { error, target, stack: stack === undefined ? {} : { stack } };
}

import type { ClaimedRow } from '../outbox/delivering/claim.ts';
import type { Failure } from '../outbox/delivering/fail.ts';
import type { LostRelay } from '../outbox/delivering/relays.ts';
import type { Logger } from '../telemetry/logging.ts';
import { SparseLog } from '../telemetry/logging.ts';
import type { EventFacts, Lifecycle } from './lifecycle.ts';
import type { SettleEntry } from './settle/settler.ts';

/** What a relay has done since it was created. */
export interface Counters {
  /** Events taken from the queue. */
  claimed: number;
  /** Events delivered to all of their targets, and that written down. */
  delivered: number;
  /** Failed attempts that will be tried again. */
  retried: number;
  /** Events that became dead letters. */
  dead: number;
  /** Events given back without an attempt. */
  released: number;
  /** Events put on the shelf, without an attempt, because a destination is away or paused. */
  shelved: number;
  /** Results that came too late, because another relay had taken over. */
  fenced: number;
  /** Events taken over from relays that ended. */
  rescued: number;
}

export function newCounters(): Counters {
  return { claimed: 0, delivered: 0, retried: 0, dead: 0, released: 0, shelved: 0, fenced: 0, rescued: 0 };
}

/** Tells the world what was written down: counters, lifecycle events, and a log line for what went wrong. */
export class Reporter {
  readonly #lifecycle: Lifecycle;
  readonly #logger: Logger;
  readonly #counters: Counters;
  readonly #log = new SparseLog(1_000);

  constructor(lifecycle: Lifecycle, logger: Logger, counters: Counters) {
    this.#lifecycle = lifecycle;
    this.#logger = logger;
    this.#counters = counters;
  }

  claimed(rows: readonly ClaimedRow[]): void {
    let rescued = 0;
    for (const row of rows) if (row.rescued) rescued++;
    this.#counters.claimed += rows.length;
    this.#counters.rescued += rescued;
    if (this.#lifecycle.wants('claimed')) this.#lifecycle.tell('claimed', { count: rows.length, rescued });
  }

  written(entry: SettleEntry, fenced: boolean): void {
    if (fenced) {
      this.#counters.fenced++;
      this.#lifecycle.tell('fenced', facts(entry.event));
      this.#warn('fenced', facts(entry.event), 'result came too late: another relay owns the event now');
    } else if ('settlement' in entry) {
      this.#counters.delivered++;
      if (!this.#lifecycle.wants('delivered')) return;
      const latencyMs = Date.now() - entry.event.createdAtMs;
      this.#lifecycle.tell('delivered', { ...facts(entry.event), targets: entry.settlement.targets, latencyMs });
    } else {
      this.#failed(entry.event, entry.failure);
    }
  }

  deaf(silentMs: number): void {
    this.#lifecycle.tell('doorbellDeaf', { silentMs });
    this.#logger.warn(
      { silentMs },
      'LISTEN receives no notifications, polling instead; behind a pooler set listen: false',
    );
  }

  rescued(lost: LostRelay): void {
    this.#lifecycle.tell('rescued', lost);
    this.#logger.warn({ ...lost }, 'a relay ended without stopping, taking over its events');
  }

  leaseLost(relay: string, token: string): void {
    this.#lifecycle.tell('leaseLost', { relay, token });
    this.#logger.error({ relay }, 'lease lost, dropping all claimed events and registering anew');
  }

  #failed(row: ClaimedRow, failure: Failure): void {
    if (failure.fate === 'release') {
      this.#counters.released++;
      if (this.#lifecycle.wants('released')) this.#lifecycle.tell('released', facts(row));
      return;
    }
    if (failure.fate === 'shelve') {
      this.#counters.shelved++;
      const { waitsFor } = failure;
      if (this.#lifecycle.wants('shelved')) this.#lifecycle.tell('shelved', { ...facts(row), waitsFor });
      return;
    }
    const last = failure.errors.at(-1);
    const error = last?.error ?? '';
    const target = last?.target ?? null;
    if (failure.fate === 'retry') {
      this.#counters.retried++;
      this.#lifecycle.tell('retried', { ...facts(row), delayMs: failure.delayMs, error, target });
      this.#warn(
        `retry:${row.type}`,
        { ...facts(row), target, delayMs: failure.delayMs, error },
        'delivery failed, will retry',
      );
    } else {
      this.#counters.dead++;
      const blocking = failure.fate === 'hold';
      this.#lifecycle.tell('dead', { ...facts(row), reason: failure.reason, error, blocking });
      this.#logger.error(
        { ...logFields(facts(row)), target, reason: failure.reason, blocking, error },
        'event is a dead letter',
      );
    }
  }

  #warn(
    kind: string,
    fields: EventFacts & { target?: string | null; delayMs?: number; error?: string },
    message: string,
  ): void {
    this.#log.say(kind, (suppressed) => this.#logger.warn({ ...logFields(fields), suppressed }, message));
  }
}

function facts(row: ClaimedRow): EventFacts {
  return {
    eventId: row.id,
    eventType: row.type,
    aggregateType: row.aggregateType,
    aggregateId: row.aggregateId,
    seq: row.seq,
    attempt: row.attempts + 1,
  };
}

/** The names that every log line about an event carries. */
function logFields({ eventId, eventType, aggregateType, aggregateId, ...rest }: EventFacts): object {
  return {
    event_id: eventId,
    event_type: eventType,
    aggregate_type: aggregateType,
    aggregate_id: aggregateId,
    ...rest,
  };
}

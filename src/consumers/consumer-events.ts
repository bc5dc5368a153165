import type { SequenceFinding } from './sequence-watch.ts';

/** The event that a lifecycle event is about. */
export interface ConsumedEvent {
  readonly eventId: string;
  readonly eventType: string;
  readonly key: string | null;
}

/** The events that a consumer emits, by name. */
export interface ConsumerEvents {
  /** The handler returned, and its effects are committed. */
  processed: [ConsumedEvent & { attempts: number }];
  /** The inbox has a record of the event, so the handler was not called. */
  duplicate: [ConsumedEvent];
  /** With `events`: the catalogue does not list the type, so the handler was not called. */
  skipped: [ConsumedEvent];
  /** An attempt failed, and another one follows after `delayMs`. */
  failed: [ConsumedEvent & { attempt: number; delayMs: number; error: string }];
  /** The message was handed over to the dead-letter mechanism of the broker. `null`: it could not be read. */
  deadLettered: [{ eventId: string | null; eventType: string | null; attempts: number; error: string }];
  /** The message was not acknowledged, and the broker delivers it again. */
  released: [ConsumedEvent];
  /** With `checkSequence`: the position of the event repeats the highest one of its key, or is behind it. */
  sequence: [ConsumedEvent & { finding: SequenceFinding; seq: string; highest: string }];
  /** The broker is unreachable, or refuses; the consumer tries again. */
  disconnected: [{ error: string }];
  /** Kafka: the client gave up, as its `restartOnFailure` tells it to or because of the error. The consumer is idle; `start()` may be called. */
  crashed: [{ error: string }];
}

export interface ConsumerCounters {
  processed: number;
  duplicates: number;
  /** With `events`: events of types that the catalogue does not list. */
  skipped: number;
  /** Attempts that failed. */
  failed: number;
  deadLettered: number;
  released: number;
  /** With `checkSequence`: positions that repeat, and that go back. */
  repeated: number;
  behind: number;
}

export type ConsumerState = 'idle' | 'starting' | 'running' | 'stopping';

/** What a consumer is doing now, and what it has done since it was created. */
export interface ConsumerStats extends ConsumerCounters {
  state: ConsumerState;
  /** Handlers in progress. */
  inFlight: number;
  /** Messages received and not begun. */
  waiting: number;
}

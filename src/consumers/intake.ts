import { type EventEmitter, setMaxListeners } from 'node:events';
import { PostcommitError } from '../errors.ts';
import { untilAborted } from '../publishers/failure.ts';
import { callListeners } from '../telemetry/call-safely.ts';
import { errorText } from '../telemetry/error-text.ts';
import { SparseLog } from '../telemetry/logging.ts';
import { readMessage } from '../wire/read-message.ts';
import type { IncomingMessage, ReceivedEvent } from '../wire/received-event.ts';
import type { ConsumedEvent, ConsumerCounters, ConsumerEvents } from './consumer-events.ts';
import type { ResolvedConsumerOptions } from './consumer-options.ts';
import { EventProcessor, type MessageOrigin, type Processed, pause } from './event-processor.ts';
import { KeyOrder } from './key-order.ts';
import { SequenceWatch } from './sequence-watch.ts';

/** Why a message becomes a dead letter. */
export interface DeadLetterReason {
  readonly error: unknown;
  /** The text of the error, with the code of a `PostcommitError` in front. Bounded. */
  readonly reason: string;
  /** Calls of the handler in this delivery; 0 for a message that could not be read. */
  readonly attempts: number;
}

/** A message that the broker has delivered. */
export interface IntakeMessage {
  readonly message: IncomingMessage;
  /** For the span of the handler. */
  readonly origin: MessageOrigin;
  /** Aborted when the broker gave the message to another consumer, or will. What has not begun is then released. */
  readonly lost?: AbortSignal;
  /** The id that the sender has signed. That of the event must be the same: its headers are not signed. */
  readonly signedId?: string;
  /** Called when a message that failed stays with the broker, before the next one of its key begins. */
  kept?(): void;
  /** Hands the message over, before the next one of its key begins. It is called again while it fails. */
  deadLetter(reason: DeadLetterReason): unknown;
  /** `deadLetter` cannot be undone once it has begun, and has a time limit of its own: a stop waits for its result. */
  readonly deadLetterIsFinal?: boolean;
}

const deadLetterDelayMaxMs = 5_000;

/** What the consumers of all brokers share: a message goes in, and its result says whether to acknowledge it. */
export class Intake {
  readonly options: ResolvedConsumerOptions;
  readonly counters: ConsumerCounters = {
    processed: 0,
    duplicates: 0,
    skipped: 0,
    failed: 0,
    deadLettered: 0,
    released: 0,
    repeated: 0,
    behind: 0,
  };
  readonly #processor: EventProcessor;
  readonly #keepsFailed: boolean;
  readonly #keyOrder: KeyOrder;
  readonly #sequences: SequenceWatch | undefined;
  readonly #log = new SparseLog();
  #emitter: EventEmitter<ConsumerEvents> | undefined;
  readonly #tracked = new Set<Promise<unknown>>();
  #stopping = quietController();
  #abandoned = quietController();

  /**
   * `waitsOutOutages`: while the inbox is unavailable, messages wait. Otherwise their result is `unavailable` at once.
   * `keepsFailed`: the broker delivers a message again whose attempts are used up, and counts its deliveries itself.
   */
  constructor(
    options: ResolvedConsumerOptions,
    { waitsOutOutages = true, keepsFailed = false }: { waitsOutOutages?: boolean; keepsFailed?: boolean } = {},
  ) {
    this.options = options;
    this.#keepsFailed = keepsFailed;
    this.#keyOrder = new KeyOrder(options.inFlightMax);
    this.#sequences = options.checkSequence ? new SequenceWatch() : undefined;
    const reports = {
      failed: (event: ReceivedEvent, attempt: number, delayMs: number, error: unknown) => {
        this.counters.failed++;
        this.#tell('failed', { ...factsOf(event), attempt, delayMs, error: errorText(error) });
      },
      unavailable: (_event: ReceivedEvent, delayMs: number, error: unknown) =>
        this.warn('event cannot be processed yet, retrying', { delayMs, error: errorText(error) }),
    };
    this.#processor = new EventProcessor(options, reports, waitsOutOutages);
  }

  /** Calls the listeners of this emitter from now on. */
  reportTo(emitter: EventEmitter<ConsumerEvents>): void {
    this.#emitter = emitter;
  }

  /** Handlers in progress. */
  get inFlight(): number {
    return this.#keyOrder.inFlight;
  }

  /** Messages received and not settled. */
  get pending(): number {
    return this.#keyOrder.pending;
  }

  /** Aborted while the consumer stops. */
  get stopping(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Takes messages again after a stop. */
  open(): void {
    this.#stopping = quietController();
    // After a crash, work of the run before may go on: the next stop must give it up, too.
    if (this.#abandoned.signal.aborted) this.#abandoned = quietController();
  }

  /** From now on no attempt begins. */
  close(): void {
    this.#stopping.abort(stopReason());
  }

  /** Discards the results of attempts and dead-letter writes in progress, unless these are final: their messages are released. */
  abandon(): void {
    this.#abandoned.abort(stopReason());
  }

  /** Resolves when less than `below` messages are in progress or waiting. One caller at a time. */
  room(below: number): Promise<void> {
    return this.#keyOrder.room(below);
  }

  /** Follows the work on a message that a source does around `receive`, above all its acknowledgement: `idle` waits for it. */
  track(work: Promise<unknown>): void {
    const ended = work.catch((error) => this.warn('message not settled', { error: errorText(error) }));
    this.#tracked.add(ended);
    void ended.then(() => this.#tracked.delete(ended));
  }

  /** Resolves when all that was received is settled, and the work that is tracked has ended. */
  async idle(): Promise<void> {
    await this.#keyOrder.idle();
    while (this.#tracked.size > 0) await Promise.all(this.#tracked);
  }

  /**
   * Processes a message when its turn within its key has come. Never rejects. The broker may forget the message unless the result is
   * `released` or `unavailable`; one that is `rejected`, or `failed` without `keepsFailed`, was handed over before.
   */
  async receive(delivery: IntakeMessage): Promise<Processed> {
    let event: ReceivedEvent;
    try {
      event = readMessage(delivery.message);
      requireSignedId(event, delivery.signedId);
    } catch (error) {
      return this.#keyOrder.run(null, async () => {
        if (this.#isEnding(delivery)) return this.#releaseUnread();
        return this.#handOver(undefined, { kind: 'rejected', error, attempts: 0 }, delivery);
      });
    }
    return this.#keyOrder.run(event.key, () => this.#process(event, delivery));
  }

  warn(message: string, fields: object): void {
    this.#log.say(message, (suppressed) =>
      this.options.logger.warn({ ...fields, ...(suppressed > 0 && { suppressed }) }, message),
    );
  }

  /** Reports that the broker cannot be used for now. */
  disconnected(error: unknown): void {
    this.warn('broker unreachable, retrying', { error: errorText(error) });
    this.#tell('disconnected', { error: errorText(error) });
  }

  /** Reports that the client gave up. */
  crashed(error: unknown): void {
    this.options.logger.error({ error: errorText(error) }, 'consumer crashed');
    this.#tell('crashed', { error: errorText(error) });
  }

  async #process(event: ReceivedEvent, delivery: IntakeMessage): Promise<Processed> {
    const ending = eitherSignal(this.#stopping.signal, delivery.lost);
    try {
      if (!ending.signal.aborted) this.#checkSequence(event);
      const signals = { ending: ending.signal, abandoned: this.#abandoned.signal };
      const result = await this.#processor.process(event, delivery.origin, signals);
      if (result.kind === 'rejected' || (result.kind === 'failed' && !this.#keepsFailed)) {
        return await this.#handOver(event, result, delivery);
      }
      if (result.kind === 'failed' || result.kind === 'unavailable') {
        const { kind, error, attempts } = result;
        if (kind === 'failed') this.counters.failed++;
        delivery.kept?.();
        this.warn('event left for redelivery', inLog({ ...factsOf(event), attempts, error: errorText(error) }));
        this.#release(event);
      } else if (result.kind === 'processed') {
        this.counters.processed++;
        this.#tell('processed', { ...factsOf(event), attempts: result.attempts });
      } else if (result.kind === 'duplicate') {
        this.counters.duplicates++;
        this.#tell('duplicate', factsOf(event));
      } else if (result.kind === 'skipped') {
        this.counters.skipped++;
        this.#tell('skipped', factsOf(event));
      } else if (result.kind === 'released') {
        this.#release(event);
      }
      return result;
    } finally {
      ending.release();
    }
  }

  /** Whether work on the message may not begin any more. */
  #isEnding({ lost }: IntakeMessage): boolean {
    return this.#stopping.signal.aborted || lost?.aborted === true;
  }

  #release(event: ReceivedEvent): void {
    this.counters.released++;
    this.#tell('released', factsOf(event));
  }

  /** Without the lifecycle event: there is nothing to tell of the event. */
  #releaseUnread(): Processed {
    this.counters.released++;
    return { kind: 'released' };
  }

  /** The dead-letter mechanism may be unreachable. Then the message stays where it is: it must not be lost. */
  async #handOver(
    event: ReceivedEvent | undefined,
    result: Extract<Processed, { kind: 'failed' | 'rejected' | 'unavailable' }>,
    delivery: IntakeMessage,
  ): Promise<Processed> {
    const { error, attempts } = result;
    const reason = reasonOf(error);
    const facts = { eventId: event?.id ?? null, eventType: event?.type ?? null, attempts, error: reason };
    const abandoned = this.#abandoned.signal;
    const ending = eitherSignal(this.#stopping.signal, delivery.lost);
    try {
      for (let tries = 0; ; tries++) {
        try {
          abandoned.throwIfAborted();
          const handedOver = Promise.resolve(delivery.deadLetter({ error, reason, attempts }));
          // A producer of the caller may never settle. What it writes after that is a second dead letter at worst.
          await (delivery.deadLetterIsFinal ? handedOver : untilAborted(handedOver, abandoned));
          break;
        } catch (failure) {
          const isEnding = ending.signal.aborted;
          const what = isEnding
            ? 'dead letter not accepted, message left to the broker'
            : 'dead letter not accepted, retrying';
          this.warn(what, inLog({ ...facts, failure: errorText(failure) }));
          if (isEnding) {
            if (event === undefined) return this.#releaseUnread();
            this.#release(event);
            return { kind: 'released' };
          }
          await pause(Math.min(deadLetterDelayMaxMs, 100 * 2 ** Math.min(tries, 10)), ending.signal);
        }
      }
    } finally {
      ending.release();
    }
    this.counters.deadLettered++;
    this.options.logger.error(inLog(facts), 'message dead-lettered');
    this.#tell('deadLettered', facts);
    return result;
  }

  #checkSequence(event: ReceivedEvent): void {
    const found = this.#sequences?.note(event.key, event.seq);
    if (found === undefined) return;
    this.counters[found.finding]++;
    this.#tell('sequence', { ...factsOf(event), ...found, seq: event.seq as string });
  }

  #tell<Name extends keyof ConsumerEvents>(name: Name, facts: ConsumerEvents[Name][0]): void {
    if (this.#emitter === undefined) return;
    callListeners(this.#emitter, name, facts, (error) =>
      this.warn('a lifecycle listener threw', { lifecycle: name, error: errorText(error) }),
    );
  }
}

export function reasonOf(error: unknown): string {
  const text = errorText(error);
  return error instanceof PostcommitError
    ? `${error.code}: ${error.detail || text}`.slice(0, 1_000)
    : text.slice(0, 1_000);
}

function factsOf({ id, type, key }: ReceivedEvent): ConsumedEvent {
  return { eventId: id, eventType: type, key };
}

/** With the names that log lines of a relay have too. */
function inLog<Facts extends { eventId: string | null; eventType: string | null }>(facts: Facts): object {
  const { eventId, eventType, ...rest } = facts;
  return { event_id: eventId, event_type: eventType, ...rest };
}

function requireSignedId({ id }: ReceivedEvent, signedId: string | undefined): void {
  if (signedId === undefined || id === signedId.toLowerCase()) return;
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_MESSAGE',
    `The id of the event is ${id}, but the signature is for another id.`,
  );
}

function stopReason(): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_CONSUMER_STOPPING');
}

/** A signal that is aborted as soon as one of the others is. `AbortSignal.any` keeps what it made for as long as its sources live. */
function eitherSignal(first: AbortSignal, second: AbortSignal | undefined): { signal: AbortSignal; release(): void } {
  if (second === undefined) return { signal: first, release() {} };
  const either = quietController();
  const abort = () => either.abort();
  if (first.aborted || second.aborted) abort();
  first.addEventListener('abort', abort, { once: true });
  second.addEventListener('abort', abort, { once: true });
  return {
    signal: either.signal,
    release() {
      first.removeEventListener('abort', abort);
      second.removeEventListener('abort', abort);
    },
  };
}

/** Every message in flight listens, and Node warns of a leak from the eleventh on. */
export function quietController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

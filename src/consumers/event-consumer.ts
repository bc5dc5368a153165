import { EventEmitter } from 'node:events';
import { errorText } from '../telemetry/error-text.ts';
import type { ConsumerEvents, ConsumerState, ConsumerStats } from './consumer-events.ts';
import type { Intake } from './intake.ts';

/** Where the messages of a consumer come from. */
export interface MessageSource {
  /**
   * Connects and begins to receive. Fails if the broker cannot be reached, and leaves nothing open then. `crashed` is called when the
   * client gives up later and receives no more.
   */
  start(crashed: (error: unknown) => void): Promise<void>;
  /** Receives no more, waits for what was received, acknowledges it and disconnects. The intake is closed by then. */
  stop(): Promise<void>;
}

/**
 * Receives the messages of a broker and processes them: each once per inbox consumer, events of one key in order, failed ones again,
 * and those that fail for good as dead letters of the broker. Made by `consumeKafka`, `consumeRabbitmq` and so on.
 *
 * `start` and `stop` may be called in any order and any number of times: they run one after the other. A listener that throws, or
 * whose promise is rejected, is logged and changes nothing.
 */
export class EventConsumer extends EventEmitter<ConsumerEvents> {
  readonly #intake: Intake;
  readonly #source: MessageSource;
  #state: ConsumerState = 'idle';
  #turn: Promise<unknown> = Promise.resolve();

  /** `runs`: it receives from the beginning, without `start()`. */
  constructor(intake: Intake, source: MessageSource, { runs = false }: { runs?: boolean } = {}) {
    super();
    if (runs) this.#state = 'running';
    this.#intake = intake;
    this.#source = source;
    intake.reportTo(this);
  }

  /** Connects to the broker and begins to receive. Fails if the broker is unreachable or refuses. */
  start(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#state === 'running') return;
      this.#state = 'starting';
      this.#intake.open();
      try {
        await this.#source.start((error) => this.#crashed(error));
        this.#state = 'running';
      } catch (error) {
        this.#state = 'idle';
        throw error;
      }
    });
  }

  /**
   * Receives no more, waits for handlers and dead letters in flight within `stopTimeoutMs`, acknowledges what is settled, and
   * disconnects. The broker delivers everything else again. Never fails.
   */
  stop(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#state !== 'running') return;
      this.#state = 'stopping';
      this.#intake.close();
      const timer = setTimeout(() => this.#intake.abandon(), this.#intake.options.stopTimeoutMs);
      try {
        await this.#source.stop();
      } catch (error) {
        this.#intake.warn('stopping failed', { error: errorText(error) });
      } finally {
        clearTimeout(timer);
        this.#state = 'idle';
      }
    });
  }

  stats(): ConsumerStats {
    const { inFlight, pending, counters } = this.#intake;
    return { state: this.#state, inFlight, waiting: pending - inFlight, ...counters };
  }

  #crashed(error: unknown): void {
    if (this.#state !== 'running') return;
    this.#state = 'idle';
    this.#intake.close();
    this.#intake.crashed(error);
  }

  /** One after the other, whatever became of the one before. */
  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work);
    this.#turn = mine.catch(() => {});
    return mine;
  }
}

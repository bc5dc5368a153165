import type { ArrayQuery } from '../../database/executor.ts';
import type { ClaimedEvent } from '../event/claimed-event.ts';
import type { SettleEntry } from '../settle/transition.ts';
import type { Doorbell } from '../wake/doorbell.ts';
import type { ClaimHistory } from './claim-history.ts';
import type { ClaimKeeperOptions } from './claim-keeper.ts';
import { ClaimKeeper } from './claim-keeper.ts';
import { ClaimTurn } from './claim-turn.ts';
import { EventBuffer } from './event-buffer.ts';
import type { ClaimReport, Lane } from './lane.ts';
import type { PollingLaneOptions } from './polling-lane.ts';
import { PollingLane } from './polling-lane.ts';

type PerQueue =
  | 'queue'
  | 'doorbell'
  | 'buffer'
  | 'turn'
  | 'knownSeqs'
  | 'onKeyFreed'
  | 'history'
  | 'slowKeys'
  | 'db'
  | 'mayClaim';
type Keeping = Pick<ClaimKeeperOptions, 'connections' | 'written' | 'onClaimsLost'>;

export interface QueueLanesOptions extends Omit<PollingLaneOptions, PerQueue>, Keeping {
  /** The queues that the relay works, with the slots of each. */
  queues: ReadonlyMap<string, number>;
  /** Events of batches that gather: room for them, beside those in slots. */
  gathering: number;
  doorbell: Pick<Doorbell, 'bell'>;
  history: ClaimHistory;
  slowKeys: PollingLaneOptions['slowKeys'];
  /** Events to buffer at once, over all queues: each has an equal part, so that none can take the room of another. */
  prefetchMax: number;
  /** Length of their payloads and headers, in UTF-16 code units. Divided likewise. */
  prefetchBytesMax: number;
  /** Buffered events that slow destinations occupy, of all queues. */
  stuck: () => number;
  /** Buffered events of a queue whose payloads are not loaded for long, at most `max`. */
  stuckLoads: (queue: string, max: number) => number;
  /** Buffered events of a queue that wait behind other queues, or behind handlers at their limits. */
  blocked: (queue: string) => number;
  /** Deliveries of a lost lease that are still in flight. */
  abandoned: (queue: string) => number;
  /** A claim has ended, and its events were passed on. */
  onClaimEnded: () => void;
}

interface QueueLane {
  lane: PollingLane;
  buffer: EventBuffer;
}

/** A polling lane, with a buffer of its own, for each queue that the relay works. */
export class QueueLanes implements Lane {
  readonly #byQueue: ReadonlyMap<string, QueueLane>;
  readonly #all: readonly QueueLane[];
  readonly #options: QueueLanesOptions;
  readonly #turn: ClaimTurn;
  readonly #keeper: ClaimKeeper;

  constructor(options: QueueLanesOptions) {
    this.#options = options;
    this.#turn = new ClaimTurn(options.onClaimEnded);
    this.#keeper = new ClaimKeeper({ ...options, events: () => this.events() });
    this.#byQueue = new Map([...options.queues].map(([queue, slots]) => [queue, this.#create(queue, slots)]));
    this.#all = [...this.#byQueue.values()];
  }

  #create(queue: string, slots: number): QueueLane {
    const options = this.#options;
    const eventsMax = Math.max(2, Math.floor(options.prefetchMax / options.queues.size));
    const buffer: EventBuffer = new EventBuffer({
      eventsMin: 2 * (slots + options.gathering),
      eventsMax,
      bytesMax: Math.floor(options.prefetchBytesMax / options.queues.size),
      stuck: () => {
        const spare = eventsMax - buffer.target;
        const blocked = Math.min(spare, options.blocked(queue));
        // Which queue the events of a slow destination are of is not known: a queue may buffer too much then, never too little.
        return Math.min(buffer.size, options.stuck()) + blocked + options.stuckLoads(queue, spare - blocked);
      },
      abandoned: () => options.abandoned(queue),
    });
    const lane: PollingLane = new PollingLane({
      ...options,
      db: this.#keeper.db,
      mayClaim: (token) => this.#keeper.mayClaim(token),
      queue,
      doorbell: options.doorbell.bell(queue),
      buffer,
      turn: this.#turn,
      knownSeqs: () => this.#all.flatMap((each) => each.buffer.seqs()),
      onKeyFreed: (wantsMore) => {
        for (const other of this.#all) if (other.lane !== lane) other.lane.keyFreed(wantsMore);
      },
    });
    return { lane, buffer };
  }

  async start(): Promise<void> {
    await Promise.all(this.#all.map(({ lane }) => lane.start()));
  }

  async stop(): Promise<void> {
    this.#keeper.stop();
    await Promise.all(this.#all.map(({ lane }) => lane.stop()));
  }

  /** Writes results, on the connection for them. */
  get writeResult(): ArrayQuery {
    return this.#keeper.writeResult;
  }

  async claimOnce(): Promise<ClaimReport> {
    const total: ClaimReport = { claimed: 0, exhausted: true, pauseMs: undefined };
    for (const { lane } of this.#all) {
      const { claimed, exhausted, pauseMs } = await lane.claimOnce();
      total.claimed += claimed;
      total.exhausted &&= exhausted;
      if (pauseMs !== undefined) total.pauseMs = Math.min(total.pauseMs ?? pauseMs, pauseMs);
    }
    return total;
  }

  settled(entry: SettleEntry): void {
    this.#byQueue.get(entry.event.queue)?.lane.settled(entry);
  }

  forget(): void {
    for (const { lane } of this.#all) lane.forget();
  }

  /** Makes deferred events ready, for the other relays. */
  undeferAll(): Promise<void> {
    return this.#options.slowKeys.undeferAll();
  }

  /** How many events to buffer, as of the last claims: of one queue, or of all. */
  bufferTarget(queue?: string): number {
    if (queue !== undefined) return this.#byQueue.get(queue)?.buffer.target ?? 0;
    return this.#all.reduce((sum, { buffer }) => sum + buffer.target, 0);
  }

  /** The events that were claimed and not yet settled. */
  events(): readonly ClaimedEvent[] {
    return this.#all.flatMap(({ buffer }) => buffer.events());
  }

  /** How many claims were begun, and how many of these have ended, with their events passed on. */
  get claims(): Pick<ClaimTurn, 'begun' | 'ended'> {
    return this.#turn;
  }

  /** Whether everything that was claimed is settled. */
  get isEmpty(): boolean {
    return this.#all.every(({ buffer }) => buffer.isEmpty);
  }

  /** Called when the last event of a queue is settled, or all are dropped. */
  set onEmpty(callback: (() => void) | undefined) {
    for (const { buffer } of this.#all) buffer.onEmpty = callback;
  }

  /** Ends a wait for `onEmpty`. */
  signalEmpty(): void {
    for (const { buffer } of this.#all) buffer.onEmpty?.();
  }
}

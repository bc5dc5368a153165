import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import type { EventCatalogue } from '../catalogue/catalogue.ts';
import { type ConsumerOptions, readConsumerOptions, resolveConsumerOptions } from './consumer-options.ts';
import { EventConsumer, type MessageSource } from './event-consumer.ts';
import { pause } from './event-processor.ts';
import { type DeadLetterReason, Intake } from './intake.ts';
import { deadLetterHeaders } from './message-headers.ts';
import { entriesOfRead, type StreamEntry, toEntries, toMessage } from './redis-entries.ts';
import { isReply, type RedisClientToCopy, RedisLink, type RedisReader } from './redis-link.ts';

export type { RedisClientToCopy } from './redis-link.ts';

interface RedisOnly {
  /**
   * A client of the package `redis`: `createClient({ url })`. It is left alone and need not be connected: the consumer opens two
   * connections of its own with its options (`client.duplicate()`).
   */
  client: RedisClientToCopy;
  stream: string;
  /** The consumer group. It is created if it does not exist, and so is the stream. */
  group: string;
  /**
   * The name of this member of the group, which no other member may have: for example the host name of a container, with its ordinal. A
   * name that stays the same across restarts gets the entries back at once that it had before a crash; with another name they are waited
   * for, up to `claimIdleMs`. Default: host, process and a random part.
   */
  name?: string;
  /** Where a new group begins: with the first entry of the stream, or with what is added from now on. Default `true`, the first. */
  fromBeginning?: boolean;
  /** Where entries go that fail for good, with the reason in the field `dead-letter-reason`. Default: the name of the stream and `:dead`. */
  deadLetterStream?: string;
  /**
   * Milliseconds after which an entry of a lost member is claimed, from 100 to 86,400,000. The same for all members of the group. While an
   * entry waits or is being processed, the time begins again. A member that starts reads new entries when no other one has older ones
   * pending, or after this time. Default 30,000.
   */
  claimIdleMs?: number;
  /** Entries that are read ahead of their acknowledgement, from 1 to 65,535. Default twice `inFlightMax`. */
  prefetchMax?: number;
}

/** Options of `consumeRedis()`. */
export type RedisConsumerOptions<Tx, Catalogue extends EventCatalogue = EventCatalogue> = RedisOnly &
  ConsumerOptions<Tx, Catalogue>;

const own = [
  'client',
  'stream',
  'group',
  'name',
  'fromBeginning',
  'deadLetterStream',
  'claimIdleMs',
  'prefetchMax',
] as const;
const reopenDelayMaxMs = 10_000;
const claimIntervalMaxMs = 5_000;
const olderIntervalMs = 250;
const unblockIntervalMs = 10;
const idsPerCommandMax = 1_000;
const leaveTriesMax = 3;
/** The member that has what others did not process before they stopped, until one that runs claims it. */
const releasedName = 'released';

/**
 * Consumes a stream of Redis as a member of a consumer group. A processed entry is acknowledged; one that fails for good is added to the
 * dead-letter stream and acknowledged. Entries of members that are lost are claimed. A lost connection is replaced, and what was lost with
 * it is read again first.
 *
 * @example
 * import { consumeRedis } from 'postcommit/redis';
 * import { createClient } from 'redis';
 *
 * const orders = consumeRedis({
 *   client: createClient({ url: 'redis://localhost:6379' }),
 *   stream: 'events:order',
 *   group: 'billing',
 *   handle: (event) => console.log(event.id),
 * });
 * await orders.start();
 */
export function consumeRedis<Tx, Catalogue extends EventCatalogue = EventCatalogue>(
  options: RedisConsumerOptions<Tx, Catalogue>,
): EventConsumer {
  const { fail, whole, flag, text } = readConsumerOptions('consumeRedis', options, own);
  const { client } = options;
  if (typeof client?.duplicate !== 'function') throw fail('client must be a client of the package redis.');
  const [stream, group] = [text('stream'), text('group')];
  if (stream === undefined) throw fail('stream must be the name of a stream.');
  if (group === undefined) throw fail('group must be the name of a consumer group.');
  const name = text('name') ?? `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;
  if (name === releasedName) throw fail(`name must not be '${releasedName}', which the consumer uses itself.`);
  const intake = new Intake(resolveConsumerOptions('consumeRedis', options, own));
  // Commands are sent as they are, so the client does not put it before the names of streams.
  const keyPrefix = String((client.options as { keyPrefix?: unknown } | undefined)?.keyPrefix ?? '');
  const source = new RedisSource(intake, {
    client,
    stream: keyPrefix + stream,
    group,
    name,
    fromBeginning: flag('fromBeginning', true),
    deadLetterStream: keyPrefix + (text('deadLetterStream') ?? `${stream}:dead`),
    claimIdleMs: whole('claimIdleMs', 30_000, 100, 86_400_000),
    prefetchMax: whole('prefetchMax', Math.min(65_535, 2 * intake.options.inFlightMax), 1, 65_535),
  });
  return new EventConsumer(intake, source);
}

class RedisSource implements MessageSource {
  readonly #intake: Intake;
  readonly #options: Required<RedisOnly>;
  /** The ids of entries that were received, until their acknowledgement is answered. */
  #unacknowledged = new Set<string>();
  #acknowledgeable: string[] = [];
  #isFlushing = false;
  /** Of entries that were not processed before the stop. */
  #released: string[] = [];
  #link: RedisLink | undefined;
  #opening: RedisLink | undefined;
  #reader: RedisReader | undefined;
  #reading: Promise<void> | undefined;
  #isWaiting = false;
  #extending: NodeJS.Timeout | undefined;
  /** The position in the entries that this member had before the connection was opened. `undefined`: all were read. */
  #ownFrom: string | undefined;
  #claimFrom = '0-0';
  #claimAt = 0;
  #claimBegunAt = 0;
  /**
   * After the start: what members that crashed had is idle for `claimIdleMs` from then on. Until it is claimed no new entries are read,
   * because they may be of the same keys. `undefined`: all of it is claimed.
   */
  #abandonedDueAt: number | undefined;

  constructor(intake: Intake, options: Required<RedisOnly>) {
    this.#intake = intake;
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#abandonedDueAt = performance.now() + this.#options.claimIdleMs;
    try {
      const link = await this.#open();
      await this.#receive(link);
    } catch (error) {
      this.#close();
      throw error;
    }
    this.#extending = setInterval(() => void this.#extend(), this.#options.claimIdleMs / 3);
    this.#reading = this.#read();
  }

  async stop(): Promise<void> {
    this.#opening?.kill();
    // A read that has been sent may not wait yet, and is then not ended.
    while (this.#isWaiting) {
      await this.#link?.unblockRead();
      if (this.#isWaiting) await sleep(unblockIntervalMs);
    }
    await this.#reading;
    await this.#intake.idle();
    clearInterval(this.#extending);
    try {
      if (!this.#link?.isReady && this.#unacknowledged.size > 0) await this.#open();
      if (this.#link?.isReady) await this.#leave(this.#link);
    } finally {
      this.#close();
      this.#released = [];
      this.#unacknowledged = new Set(this.#acknowledgeable);
    }
  }

  async #open(): Promise<RedisLink> {
    this.#close();
    const { client, stream, group, fromBeginning } = this.#options;
    const link = new RedisLink(client);
    this.#opening = link;
    try {
      await link.open(this.#reader);
      this.#reader = link.reader;
      const create = link.send(['XGROUP', 'CREATE', stream, group, fromBeginning ? '0' : '$', 'MKSTREAM']);
      await create.catch((error) => {
        // Without the right to create it, it may exist all the same.
        if (!isReply(error, 'BUSYGROUP') && !isReply(error, 'NOPERM')) throw error;
      });
      await this.#flush(link);
    } catch (error) {
      link.kill();
      throw error;
    } finally {
      this.#opening = undefined;
    }
    this.#ownFrom = '0';
    this.#claimFrom = '0-0';
    this.#claimAt = 0;
    this.#link = link;
    this.#beginFlush();
    return link;
  }

  #close(): void {
    this.#link?.kill();
    this.#link = undefined;
  }

  async #read(): Promise<void> {
    const { stopping } = this.#intake;
    for (let tries = 0; !stopping.aborted; ) {
      try {
        const link = this.#link ?? (await this.#open());
        await this.#intake.room(this.#options.prefetchMax);
        if (stopping.aborted) return;
        await this.#receive(link);
        tries = 0;
      } catch (error) {
        if (stopping.aborted) return;
        this.#close();
        this.#intake.disconnected(error);
        await pause(Math.random() * Math.min(reopenDelayMaxMs, 200 * 2 ** Math.min(tries++, 10)), stopping);
      }
    }
  }

  /** Reads one batch: first what this member had before, which comes before new entries of its keys, then what lost members had. */
  async #receive(link: RedisLink): Promise<void> {
    const { stream, group, name, claimIdleMs, prefetchMax } = this.#options;
    const count = String(Math.max(1, prefetchMax - this.#intake.pending));
    const read = ['XREADGROUP', 'GROUP', group, name, 'COUNT', count];
    if (this.#ownFrom !== undefined) {
      const entries = entriesOfRead(await link.read([...read, 'STREAMS', stream, this.#ownFrom]));
      this.#ownFrom = entries.at(-1)?.id;
      return this.#take(entries);
    }
    const waitMs = Math.ceil(this.#claimAt - performance.now());
    if (waitMs <= 0) {
      if (this.#claimFrom === '0-0') this.#claimBegunAt = performance.now();
      const claim = ['XAUTOCLAIM', stream, group, name, String(claimIdleMs), this.#claimFrom, 'COUNT', count];
      const [next, entries] = (await link.read(claim)) as [Buffer, unknown];
      this.#claimFrom = String(next);
      if (this.#claimFrom === '0-0') {
        this.#claimAt = performance.now() + Math.min(claimIntervalMaxMs, claimIdleMs / 2);
      }
      return this.#take(toEntries(entries));
    }
    if (this.#abandonedDueAt !== undefined) return this.#awaitAbandoned(link, this.#abandonedDueAt);
    this.#isWaiting = true;
    try {
      const reply = await link.read([...read, 'BLOCK', String(waitMs), 'STREAMS', stream, '>'], waitMs);
      this.#take(entriesOfRead(reply));
    } finally {
      this.#isWaiting = false;
    }
  }

  /** Members that work have pending entries, too, so this waits no longer than `claimIdleMs`. */
  async #awaitAbandoned(link: RedisLink, dueAt: number): Promise<void> {
    const { stream, group, name } = this.#options;
    const [, , , members] = (await link.send(['XPENDING', stream, group])) as [
      number,
      unknown,
      unknown,
      Buffer[][] | null,
    ];
    const isElsewhere = (members ?? []).some(([member]) => String(member) !== name);
    if (!isElsewhere || this.#claimBegunAt > dueAt) {
      this.#abandonedDueAt = undefined;
      return;
    }
    await pause(olderIntervalMs, this.#intake.stopping);
    this.#claimAt = 0;
  }

  #take(entries: readonly StreamEntry[]): void {
    let deleted = 0;
    for (const { id, fields } of entries) {
      if (this.#unacknowledged.has(id)) continue;
      this.#unacknowledged.add(id);
      if (fields === null) {
        deleted++;
        this.#acknowledge(id);
        continue;
      }
      this.#intake.track(this.#process(id, fields));
    }
    if (deleted > 0) this.#intake.warn('entries were deleted from the stream before they were processed', { deleted });
  }

  async #process(id: string, fields: readonly Buffer[]): Promise<void> {
    const { kind } = await this.#intake.receive({
      message: toMessage(fields),
      origin: { system: 'redis', destination: this.#options.stream },
      deadLetter: (reason) => this.#handOver(id, fields, reason),
    });
    if (kind === 'released' || kind === 'unavailable') this.#released.push(id);
    else this.#acknowledge(id);
  }

  async #handOver(id: string, fields: readonly Buffer[], reason: DeadLetterReason): Promise<void> {
    if (this.#link === undefined) throw new Error('Redis is not connected.');
    const { stream, deadLetterStream } = this.#options;
    const more = { ...deadLetterHeaders(reason), 'dead-letter-stream': stream, 'dead-letter-entry': id };
    await this.#link.send(['XADD', deadLetterStream, '*', ...fields, ...Object.entries(more).flat()]);
  }

  #acknowledge(id: string): void {
    this.#acknowledgeable.push(id);
    this.#beginFlush();
  }

  /** Without a connection they are acknowledged when there is one again. */
  #beginFlush(): void {
    const link = this.#link;
    if (link === undefined || this.#isFlushing || this.#acknowledgeable.length === 0) return;
    this.#isFlushing = true;
    const ended = (isLost: boolean) => {
      this.#isFlushing = false;
      // The read fails as well, and the connection is replaced.
      if (isLost) link.kill();
      if (!isLost || this.#link !== link) this.#beginFlush();
    };
    void this.#flush(link).then(
      () => ended(false),
      () => ended(true),
    );
  }

  async #flush(link: RedisLink): Promise<void> {
    const { stream, group } = this.#options;
    while (this.#acknowledgeable.length > 0) {
      const some = this.#acknowledgeable.slice(0, idsPerCommandMax);
      await link.send(['XACK', stream, group, ...some]);
      // Another connection may have acknowledged some of them meanwhile.
      const done = new Set(some);
      this.#acknowledgeable = this.#acknowledgeable.filter((id) => !done.has(id));
      for (const id of some) this.#unacknowledged.delete(id);
    }
  }

  /** Other members claim what is idle for `claimIdleMs`. */
  async #extend(): Promise<void> {
    const all = [...this.#unacknowledged];
    try {
      await this.#claim(all, this.#options.name, 0);
    } catch (error) {
      this.#intake.disconnected(error);
    }
  }

  /** Hands back what was not processed, and leaves the group. */
  async #leave(link: RedisLink): Promise<void> {
    const { stream, group, name, claimIdleMs } = this.#options;
    await this.#flush(link);
    await this.#claim(this.#released, releasedName, claimIdleMs);
    // Redis forgets the entries of a member that is deleted.
    for (let tries = 0; tries < leaveTriesMax; tries++) {
      await link.send(['WATCH', stream]);
      const left = (await link.send(['XPENDING', stream, group, '-', '+', '1', name])) as unknown[];
      if (left.length > 0) return;
      await link.send(['MULTI']);
      await link.send(['XGROUP', 'DELCONSUMER', stream, group, name]);
      if ((await link.send(['EXEC'])) !== null) return;
    }
  }

  /** Gives entries to a member, as if they were idle for some time. It does not count as a delivery. */
  async #claim(ids: readonly string[], name: string, idleMs: number): Promise<void> {
    const { stream, group } = this.#options;
    for (let start = 0; start < ids.length; start += idsPerCommandMax) {
      const some = ids.slice(start, start + idsPerCommandMax);
      await this.#link?.send(['XCLAIM', stream, group, name, '0', ...some, 'IDLE', String(idleMs), 'JUSTID']);
    }
  }
}

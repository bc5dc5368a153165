import type { RelayInfo } from '../outbox/operating/list-relays.ts';

/** One point of the charts. A rate is `null` until two readings are known. */
export interface RatePoint {
  /** Milliseconds since 1970, by the database's clock. */
  at: number;
  emittedPerSecond: number | null;
  deliveredPerSecond: number | null;
  /** Failed attempts and dead letters among all attempts, from 0 to 1. */
  errorRate: number | null;
  backlog: number;
  p50Ms: number | null;
  p95Ms: number | null;
}

export interface RateSample {
  at: number;
  lastSeq: string;
  p50Ms: number | null;
  p95Ms: number | null;
  backlog: number;
  relays: readonly Pick<RelayInfo, 'token' | 'heartbeatAt' | 'stats'>[];
}

/** A quarter of an hour, at one reading every two seconds. */
const pointsMax = 450;
/** A partition that is opened moves the seq by a trillion. */
const seqJump = 1_000_000_000n;

interface RelayState {
  heartbeatAt: number;
  delivered: number;
  failed: number;
  deliveredPerSecond: number | null;
  failedPerSecond: number | null;
}

/**
 * Turns counters into rates. Relays report counters with their heartbeat, every few seconds, so a relay's rate is that between
 * its last two heartbeats. The emit rate is how fast the seq grows; rolled back emits count in it.
 */
export class RateHistory {
  readonly #points: RatePoint[] = [];
  #before: { at: number; lastSeq: bigint } | undefined;
  #relays = new Map<string, RelayState>();

  get points(): readonly RatePoint[] {
    return this.#points;
  }

  add(reading: RateSample): void {
    const states = reading.relays.map((relay) => [relay.token, this.#stateOf(relay)] as const);
    this.#relays = new Map(states);
    const rates = [...this.#relays.values()];
    const delivered = sum(rates.map(({ deliveredPerSecond }) => deliveredPerSecond));
    const failed = sum(rates.map(({ failedPerSecond }) => failedPerSecond));
    const attempts = (delivered ?? 0) + (failed ?? 0);
    this.#points.push({
      at: reading.at,
      emittedPerSecond: this.#emitRate(reading),
      deliveredPerSecond: delivered,
      errorRate: failed === null ? null : attempts === 0 ? 0 : failed / attempts,
      backlog: reading.backlog,
      p50Ms: reading.p50Ms,
      p95Ms: reading.p95Ms,
    });
    if (this.#points.length > pointsMax) this.#points.shift();
  }

  #emitRate({ at, lastSeq }: RateSample): number | null {
    const before = this.#before;
    this.#before = { at, lastSeq: BigInt(lastSeq) };
    if (before === undefined || at <= before.at) return null;
    const grown = BigInt(lastSeq) - before.lastSeq;
    return grown < 0n || grown >= seqJump ? null : (Number(grown) * 1_000) / (at - before.at);
  }

  #stateOf({ token, heartbeatAt, stats }: RateSample['relays'][number]): RelayState {
    const now = heartbeatAt.getTime();
    const delivered = count(stats.delivered);
    const failed = count(stats.failed) + count(stats.deadLettered);
    const before = this.#relays.get(token);
    if (before === undefined) {
      return { heartbeatAt: now, delivered, failed, deliveredPerSecond: null, failedPerSecond: null };
    }
    if (now <= before.heartbeatAt) return before;
    const rate = (grown: number) => Math.max(0, (grown * 1_000) / (now - before.heartbeatAt));
    return {
      heartbeatAt: now,
      delivered,
      failed,
      deliveredPerSecond: rate(delivered - before.delivered),
      failedPerSecond: rate(failed - before.failed),
    };
  }
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0;
}

function sum(values: readonly (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((total, value) => total + value, 0);
}

import type { OrderService } from './order-service.ts';
import type { Evidence } from './order-service-evidence.ts';
import type { FleetMember, RelayFleet } from './relay-fleet.ts';

export interface Milestone {
  atMs: number;
  text: string;
  mood: 'plain' | 'good' | 'bad';
}

/** What the screen shows. */
export interface Score {
  phase: 'starting' | 'writing' | 'draining' | 'done';
  elapsedMs: number;
  committed: number;
  rolledBack: number;
  delivered: number;
  backlog: number;
  retries: number;
  deadLetters: number;
  /** Events per second, over the last second. */
  rate: number;
  /** Events per second, one value per sample, oldest first. */
  rates: readonly number[];
  /** Commit to handler, over the last two seconds; `undefined` without deliveries. */
  latencyMs: { p50: number; p99: number } | undefined;
  relays: readonly FleetMember[];
  milestones: readonly Milestone[];
}

/** The interval of calls of `sample`. */
export const sampleEveryMs = 250;
const ratesMax = 240;
const latencyWindowMs = 2_000;
const latencySamplesMax = 20_000;
const milestonesMax = 100;

/** Collects the numbers of a running demo. The checks do not use them: they query the database. */
export class Scoreboard {
  phase: Score['phase'] = 'starting';
  readonly milestones: Milestone[] = [];
  onMilestone: (milestone: Milestone) => void = () => {};
  readonly #service: OrderService;
  readonly #members: () => RelayFleet['members'];
  #startedAt: number | undefined;
  #backlog = 0;
  #endedAfterMs: number | undefined;
  #latencies: { at: number; ms: number }[] = [];
  readonly #rates: number[] = [];
  #sampledAt = 0;
  #deliveredBefore = 0;
  #final: Evidence | undefined;

  constructor(service: OrderService, members: () => RelayFleet['members']) {
    this.#service = service;
    this.#members = members;
  }

  get elapsedMs(): number {
    if (this.#startedAt === undefined) return 0;
    return this.#endedAfterMs ?? performance.now() - this.#startedAt;
  }

  start(): void {
    this.#startedAt = performance.now();
    this.#sampledAt = this.#startedAt;
    this.phase = 'writing';
  }

  /** Shows the numbers of the database from now on. */
  finish(evidence: Evidence): void {
    this.#endedAfterMs = this.elapsedMs;
    this.#final = evidence;
    // What the killed relay delivered after its last message.
    const unreported = evidence.delivered - this.#delivered;
    const killed = this.#members().find(({ state }) => state === 'killed');
    if (killed && unreported > 0) killed.delivered += unreported;
    this.#backlog = evidence.status.open;
    this.phase = 'done';
  }

  addMilestone(text: string, mood: Milestone['mood'] = 'plain'): void {
    const milestone = { atMs: this.elapsedMs, text, mood };
    this.milestones.push(milestone);
    if (this.milestones.length > milestonesMax) this.milestones.shift();
    this.onMilestone(milestone);
  }

  /** Adds a sample of the rate, and sets the number of undelivered events. */
  sample(backlog: number): void {
    const now = performance.now();
    const delivered = this.#delivered;
    this.#backlog = backlog;
    this.#rates.push(((delivered - this.#deliveredBefore) * 1_000) / Math.max(1, now - this.#sampledAt));
    if (this.#rates.length > ratesMax) this.#rates.shift();
    this.#sampledAt = now;
    this.#deliveredBefore = delivered;
  }

  addLatencies(latenciesMs: readonly number[]): void {
    const at = performance.now();
    for (const ms of latenciesMs) this.#latencies.push({ at, ms });
    const overdue = this.#latencies.findIndex((sample) => at - sample.at < latencyWindowMs);
    const excess = Math.max(overdue, this.#latencies.length - latencySamplesMax);
    if (excess > 0) this.#latencies.splice(0, excess);
  }

  score(): Score {
    const relays = this.#members();
    const sum = (of: 'failed' | 'deadLettered') => relays.reduce((total, relay) => total + relay[of], 0);
    const lastSecond = this.#rates.slice(-1_000 / sampleEveryMs);
    return {
      phase: this.phase,
      elapsedMs: this.elapsedMs,
      committed: this.#final?.committed ?? this.#service.committed,
      rolledBack: this.#service.rolledBackIds.length,
      delivered: this.#final?.delivered ?? this.#delivered,
      backlog: this.#backlog,
      retries: this.#final?.retries ?? sum('failed'),
      deadLetters: this.#final?.dead ?? sum('deadLettered'),
      rate: this.#final?.ratePerSecond ?? average(lastSecond),
      rates: this.#rates,
      latencyMs: this.#final?.latencyMs ?? percentiles(this.#latencies.map(({ ms }) => ms)),
      relays,
      milestones: this.milestones,
    };
  }

  get #delivered(): number {
    return this.#members().reduce((total, relay) => total + relay.delivered, 0);
  }
}

function average(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

function percentiles(values: readonly number[]): Score['latencyMs'] {
  if (values.length === 0) return undefined;
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { p50: at(0.5), p99: at(0.99) };
}

import type pg from 'pg';
import { seededRandom, shuffled } from './shuffled.ts';

/** One way to do a transaction. */
export interface Entrant {
  name: string;
  run(transaction: number): Promise<void>;
}

/** How the entrants take turns. */
export interface Turns {
  clients: number;
  rounds: number;
  turns: number;
  transactionsPerTurn: number;
  seed: number;
}

/** How long each transaction of a round took, and how long all turns took together. */
export interface RoundTimes {
  latenciesMs: number[];
  busyMs: number;
}

/**
 * Between two turns, so that what one entrant leaves to the background (a NOTIFY) does not fall into the next. Spent on
 * round trips: a pause would let the processors go to sleep, and each turn would measure how they wake up.
 */
const betweenTurnsMs = 15;
/** Not counted: connections, plans and the JIT warm up. */
export const warmUpTurns = 10;

/** Runs transactions of every entrant in turns, in random order. Returns the times by entrant and how many transactions there were. */
export async function takeTurns(
  pool: pg.Pool,
  entrants: readonly Entrant[],
  task: Turns,
): Promise<{ rounds: Record<string, RoundTimes[]>; transactions: number }> {
  const random = seededRandom(task.seed);
  const numbers = { last: 0 };
  for (let turn = 0; turn < warmUpTurns; turn++) await oneTurn(pool, shuffled(entrants, random), task, numbers);
  const rounds: Record<string, RoundTimes[]> = Object.fromEntries(entrants.map(({ name }) => [name, []]));
  for (let round = 0; round < task.rounds; round++) {
    for (const { name } of entrants) rounds[name]?.push({ latenciesMs: [], busyMs: 0 });
    for (let turn = 0; turn < task.turns; turn++) {
      for (const [name, { latenciesMs, busyMs }] of await oneTurn(pool, shuffled(entrants, random), task, numbers)) {
        const sum = rounds[name]?.[round];
        if (!sum) continue;
        sum.latenciesMs.push(...latenciesMs);
        sum.busyMs += busyMs;
      }
    }
  }
  return { rounds, transactions: numbers.last };
}

/** Some transactions of every entrant. The caller shuffles, so that no entrant always follows the same one. */
async function oneTurn(
  pool: pg.Pool,
  inOrder: readonly Entrant[],
  { clients, transactionsPerTurn }: Turns,
  numbers: { last: number },
): Promise<Map<string, RoundTimes>> {
  const results = new Map<string, RoundTimes>();
  for (const entrant of inOrder) {
    await keepBusy(pool);
    const latenciesMs: number[] = [];
    let left = transactionsPerTurn;
    const client = async () => {
      while (left-- > 0) {
        const startedAtMs = performance.now();
        await entrant.run(++numbers.last);
        latenciesMs.push(performance.now() - startedAtMs);
      }
    };
    const startedAtMs = performance.now();
    await Promise.all(Array.from({ length: clients }, client));
    results.set(entrant.name, { latenciesMs, busyMs: performance.now() - startedAtMs });
  }
  return results;
}

async function keepBusy(pool: pg.Pool): Promise<void> {
  const until = performance.now() + betweenTurnsMs;
  while (performance.now() < until) await pool.query('select 1');
}

/** Of `select 1`, the median. */
export async function roundTrip(pool: pg.Pool): Promise<number> {
  const client = await pool.connect();
  const tookMs: number[] = [];
  for (let i = 0; i < 500; i++) {
    const startedAtMs = performance.now();
    await client.query('select 1');
    tookMs.push(performance.now() - startedAtMs);
  }
  client.release();
  return tookMs.sort((a, b) => a - b)[250] as number;
}

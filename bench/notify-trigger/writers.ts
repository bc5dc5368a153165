// Writers that insert events with plain SQL, with and without the trigger, in turns, in a process of its own. Answers by IPC.
import pg from 'pg';
import { payloadOf } from '../contenders/contender.ts';
import { seededRandom, shuffled } from '../shuffled.ts';

/** How a turn writes. Each has an outbox of its own in the one database. */
export interface WriterStyle {
  name: string;
  schema: string;
  trigger: boolean;
  /** Whether the sessions turn the trigger off for themselves. */
  turnedOff?: boolean;
}

export interface WritersTask {
  connectionString: string;
  styles: WriterStyle[];
  writers: number;
  rounds: number;
  turns: number;
  transactionsPerTurn: number;
  payloadBytes: number;
  seed: number;
}

export interface WritersReport {
  node: string;
  /** By style, for each round: commits a second. */
  perSecond: Record<string, number[]>;
}

const warmUpTurns = 3;

async function measure(task: WritersTask): Promise<WritersReport> {
  const pools = new Map(
    task.styles.map((style) => {
      const options = style.turnedOff ? '-c postcommit.notify_trigger=off' : '';
      return [style, new pg.Pool({ connectionString: task.connectionString, max: task.writers, options })];
    }),
  );
  const payload = JSON.stringify(payloadOf(1, task.payloadBytes));
  let aggregate = 0;
  const turnMs = async (style: WriterStyle): Promise<number> => {
    const pool = pools.get(style) as pg.Pool;
    const text = `insert into ${style.schema}.outbox_events (aggregate_type, aggregate_id, event_type, payload)
      values ('order', $1, 'order.created', $2)`;
    let left = task.transactionsPerTurn;
    const writer = async () => {
      while (left-- > 0) await pool.query(text, [String(++aggregate), payload]);
    };
    const startedAtMs = performance.now();
    await Promise.all(Array.from({ length: task.writers }, writer));
    return performance.now() - startedAtMs;
  };
  const random = seededRandom(task.seed);
  for (let turn = 0; turn < warmUpTurns; turn++) for (const style of task.styles) await turnMs(style);
  const perSecond: WritersReport['perSecond'] = Object.fromEntries(task.styles.map(({ name }) => [name, []]));
  for (let round = 0; round < task.rounds; round++) {
    const busyMs = new Map<WriterStyle, number>();
    for (let turn = 0; turn < task.turns; turn++) {
      for (const style of shuffled(task.styles, random)) {
        busyMs.set(style, (busyMs.get(style) ?? 0) + (await turnMs(style)));
      }
    }
    for (const [{ name }, ms] of busyMs) {
      perSecond[name]?.push((task.turns * task.transactionsPerTurn * 1_000) / ms);
    }
  }
  await verify(pools, task);
  for (const pool of pools.values()) await pool.end();
  return { node: process.version, perSecond };
}

/** Every event is in the log and in the queue. */
async function verify(pools: ReadonlyMap<WriterStyle, pg.Pool>, task: WritersTask): Promise<void> {
  const expected = (warmUpTurns + task.rounds * task.turns) * task.transactionsPerTurn;
  for (const [{ schema }, pool] of pools) {
    const { rows } = await pool.query(
      `select (select count(*) from ${schema}.outbox_events)::int as events,
              (select count(*) from ${schema}.outbox_queue)::int as queued`,
    );
    if (rows[0]?.events !== expected || rows[0]?.queued !== expected) {
      throw new Error(`${schema}: expected ${expected} events, found ${JSON.stringify(rows[0])}.`);
    }
  }
}

const report = await measure(JSON.parse(process.argv[2] ?? '') as WritersTask);
process.send?.(report, () => process.exit(0));

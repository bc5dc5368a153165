// Claims from several outboxes in turns, in a process of its own, through the relay's own lane. Answers by IPC.
import os from 'node:os';
import pg from 'pg';
import type { ClaimedRow } from '../../src/outbox/delivering/claim.ts';
import type * as Register from '../../src/outbox/delivering/register-relay.ts';
import type * as Settle from '../../src/outbox/delivering/settle.ts';
import type * as History from '../../src/relay/lane/claim-history.ts';
import type * as Turn from '../../src/relay/lane/claim-turn.ts';
import type * as Lane from '../../src/relay/lane/polling-lane.ts';
import { seededRandom, shuffled } from '../shuffled.ts';

export interface ClaimsTask {
  /** Connection strings by name. */
  outboxes: Record<string, string>;
  rounds: number;
  /** Of each size and in each outbox, not counted. */
  warmUpClaims: number;
  /** How many claims of which size a round makes. */
  batches: { size: number; claims: number }[];
  seed: number;
}

export interface ClaimsReport {
  node: string;
  /** By outbox and batch size, for each round: how long each claim took. */
  tookMs: Record<string, Record<number, number[][]>>;
}

const dist = (path: string) => import(new URL(`../../dist/${path}`, import.meta.url).href);
const { PollingLane }: typeof Lane = await dist('relay/lane/polling-lane.js');
const { ClaimHistory }: typeof History = await dist('relay/lane/claim-history.js');
const { ClaimTurn }: typeof Turn = await dist('relay/lane/claim-turn.js');
const { settle }: typeof Settle = await dist('outbox/delivering/settle.js');
const { registerRelay }: typeof Register = await dist('outbox/delivering/register-relay.js');
const schema = 'postcommit';
const nothing = () => {};

/** A relay that claims when it is told to: its lane, and nothing around it. */
class Claimer {
  readonly name: string;
  readonly #client: pg.Client;
  readonly #lane: Lane.PollingLane;
  #token = '';
  #size = 0;
  #claimed: readonly ClaimedRow[] = [];

  constructor(name: string, connectionString: string) {
    this.name = name;
    this.#client = new pg.Client({ connectionString, pipeline: true });
    const db = {
      query: (text: string, values: unknown[]) => this.#client.query(text, values),
      queryArrays: this.#queryArrays,
    };
    const buffer = {
      room: () => this.#size + 1, // One place is for a waiting event that is due, of which there are none.
      suspectRoom: 1,
      add: nothing,
    };
    this.#lane = new PollingLane({
      schema,
      db: db as unknown as Lane.PollingLaneOptions['db'],
      doorbell: undefined as unknown as Lane.PollingLaneOptions['doorbell'], // It never waits.
      batchSizeMax: 5_000,
      logger: { debug: nothing, info: nothing, warn: nothing, error: nothing },
      buffer: buffer as unknown as Lane.PollingLaneOptions['buffer'],
      queue: 'default',
      turn: new ClaimTurn(),
      knownSeqs: () => [],
      onKeyFreed: nothing,
      history: new ClaimHistory(),
      slowKeys: { excludedKeys: async () => [] } as unknown as Lane.PollingLaneOptions['slowKeys'],
      dispatcher: { accept: nothing, releaseExcess: () => new Set() },
      token: () => this.#token,
      isCurrent: () => true,
      targets: () => [],
      onClaimed: (_queue, rows) => {
        this.#claimed = rows;
      },
      onRefused: nothing,
    });
  }

  readonly #queryArrays = (text: string, values: unknown[]) =>
    this.#client.query<unknown[]>({ text, values, rowMode: 'array' });

  async connect(): Promise<void> {
    await this.#client.connect();
    const relay = { name: 'bench', host: os.hostname(), pid: process.pid, leaseMs: 3_600_000 };
    this.#token = await registerRelay(this.#client, schema, relay);
  }

  /** Claims, and then settles what it got, so that the next claim finds what a relay's would. */
  async claimAndSettle(size: number): Promise<number> {
    this.#size = size;
    const startedAtMs = performance.now();
    await this.#lane.claimOnce();
    const tookMs = performance.now() - startedAtMs;
    const rows = this.#claimed;
    if (rows.length !== size) throw new Error(`${this.name}: claimed ${rows.length} events and not ${size}.`);
    const settled = rows.map(({ seq }) => ({ seq, targets: ['noop'] }));
    const foreign = await settle(this.#queryArrays, schema, this.#token, settled);
    if (foreign.length > 0) throw new Error(`${this.name}: ${foreign.length} events were not its own.`);
    return tookMs;
  }

  end(): Promise<void> {
    return this.#client.end();
  }
}

async function measure({ outboxes, rounds, warmUpClaims, batches, seed }: ClaimsTask): Promise<ClaimsReport> {
  const claimers = Object.entries(outboxes).map(([name, url]) => new Claimer(name, url));
  for (const claimer of claimers) await claimer.connect();
  const random = seededRandom(seed);
  for (const { size } of batches) await claimInTurns(claimers, size, warmUpClaims, random);
  const tookMs: ClaimsReport['tookMs'] = {};
  for (const { name } of claimers) tookMs[name] = Object.fromEntries(batches.map(({ size }) => [size, []]));
  for (let round = 0; round < rounds; round++) {
    for (const { size, claims } of batches) {
      for (const [name, took] of await claimInTurns(claimers, size, claims, random)) tookMs[name]?.[size]?.push(took);
    }
  }
  for (const claimer of claimers) await claimer.end();
  return { node: process.version, tookMs };
}

/** One claim from each outbox in random order, again and again. */
async function claimInTurns(
  claimers: Claimer[],
  size: number,
  claims: number,
  random: () => number,
): Promise<Map<string, number[]>> {
  const tookMs = new Map(claimers.map(({ name }): [string, number[]] => [name, []]));
  for (let i = 0; i < claims; i++) {
    for (const claimer of shuffled(claimers, random)) {
      tookMs.get(claimer.name)?.push(await claimer.claimAndSettle(size));
    }
  }
  return tookMs;
}

const report = await measure(JSON.parse(process.argv[2] ?? '') as ClaimsTask);
process.send?.(report, () => process.exit(0));

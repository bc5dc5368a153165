/** The one method the benchmark needs of a database connection. `pg` clients fit as they are. */
export interface Database {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
}

/** The work every contender gets: the same payloads, in the same order. */
export interface Backlog {
  events: number;
  payloadBytes: number;
  /** How many aggregates the events are spread over. Only a contender that keeps order looks at it. */
  aggregates: number;
}

export interface Running {
  stop(): Promise<void>;
}

export type Settings = Record<string, number>;

/** Where and with what a contender works in this run. */
export interface Target {
  connectionString: string;
  backlog: Backlog;
  settings: Settings;
}

/** What a contender calls for each event: its id, and the event as its own handler gets it (see `orderOf`). */
export type OnEvent = (id: string, event: unknown) => void;

/** Writes one business row and one event about it in one transaction, the way the product's documentation has it. */
export interface Emitter {
  emit(order: number): Promise<CommitTimes>;
  stop(): Promise<void>;
}

/** By the monotonic clock that all processes share. */
export interface CommitTimes {
  /** Just before COMMIT was handed to the client. */
  commitSentAtMs: number;
  /** When its answer had arrived. */
  committedAtMs: number;
}

/** Slow contenders get less to do: nobody waits an hour for a figure that is clear after a second. */
export interface Limits {
  events: number;
  rounds: number;
  processes: number;
}

export interface ClaimSummary {
  claimed: number;
  /** Queue rows that the claim looked at and could have taken. */
  examined: number;
}

/**
 * One product in the race. Parent and child process share this file: `prepare`, `fill` and `start` run in a child under
 * the Node that the peers need, `unsettled` and `remaining` wherever the truth in the database is asked for.
 */
export interface Contender {
  readonly name: string;
  /** Where its `package.json` lies: gives its version, and the copy of `pg` that it uses. */
  readonly packageJson: URL;
  /** What its speed depends on; `--set name.key=number` overrides, so that the tuning can be repeated. */
  readonly settings: Settings;
  /** What tells its claim from every other statement; the clock starts at the first one. */
  readonly claimStatement: RegExp;
  readonly limits?: Partial<Limits>;
  /** What a claim did, read from the rows of its answer. Only for `bench/relays.ts`. */
  readonly readClaim?: (rows: unknown[]) => ClaimSummary;
  /** What it needs of the server beyond the default settings. */
  readonly serverSettings?: Readonly<Record<string, string>>;

  /** Creates its tables in an empty database. */
  prepare(target: Target): Promise<void>;
  /** Puts the backlog in. Not timed. */
  fill(target: Target): Promise<void>;
  /** Starts one worker process's worth of delivery to a no-op handler that only reports the id it was called for. */
  start(target: Target, onEvent: OnEvent): Promise<Running>;
  /** The `orderId` in the payload of an event that its handler got. */
  orderOf?(event: unknown): number;
  /** For measuring latency. The table `orders` is there. */
  connectEmitter?(target: Target): Promise<Emitter>;

  /** Whether any of these ids, newest last, is not durably settled yet. Must be cheap: it is polled. */
  unsettled(db: Database, ids: string[]): Promise<boolean>;
  /** How many events of the backlog are not settled as delivered. May scan everything. */
  remaining(db: Database, backlog: Backlog): Promise<number>;
}

/** Splits the backlog, so that a fill is a few hundred statements and not one of 50 MB. */
export function* chunks(backlog: Backlog, size = 1_000): Generator<number[]> {
  for (let first = 1; first <= backlog.events; first += size) {
    const last = Math.min(first + size - 1, backlog.events);
    yield Array.from({ length: last - first + 1 }, (_, index) => first + index);
  }
}

/**
 * An order of exactly `bytes` bytes of JSON. Several fields rather than one long string, because parsing and jsonb cost
 * by the field.
 */
export function payloadOf(index: number, bytes: number): Record<string, unknown> {
  const payload = {
    orderId: index,
    customer: `customer-${index % 997}`,
    currency: 'EUR',
    lines: [
      { sku: `sku-${index % 89}`, quantity: 1 + (index % 5), cents: 1_000 + (index % 9_000) },
      { sku: `sku-${index % 83}`, quantity: 1 + (index % 3), cents: 500 + (index % 7_000) },
    ],
    note: '',
  };
  const missing = bytes - JSON.stringify(payload).length;
  if (missing < 0) throw new Error(`A payload cannot be smaller than ${payloadBytesMin} bytes.`);
  payload.note = 'the customer asked to leave the parcel with a neighbour; '
    .repeat(Math.ceil(missing / 50))
    .slice(0, missing);
  return payload;
}

export const payloadBytesMin = 256;

/** Scattered, so that one claim meets the same aggregate several times, as in life, and not every one exactly once. */
export function aggregateOf(index: number, aggregates: number): string {
  // xorshift after a multiplication: the low bits of a product alone would walk through the aggregates in turn.
  const mixed = Math.imul(index, 2_654_435_761);
  return `order-${((mixed ^ (mixed >>> 15)) >>> 0) % aggregates}`;
}

import { isUnreadable } from '../../database/database-error.ts';
import type { ArrayQuery } from '../../database/executor.ts';
import { perSchema } from '../../database/identifier.ts';
import { defaultQueue } from '../../queue-name.ts';
import { inlineBytesMax } from './load-payload.ts';

/** See migrations/routines/claim_many.sql for the contract and the rationale. */
export const claimSql = perSchema(
  (
    s,
  ) => `select * from ${s}.claim_many($1::bigint, $2::bigint, $3::integer, $4::integer, $5::bigint[], $6::integer, $7::bigint[],
  $8::bigint, $9::bigint, $10::text, $11::boolean, $12::boolean, $13::integer, $14::text[], $15::text)`,
);

/** A claimed event as read from the database. Seqs are text: a bigint does not fit a JavaScript number. */
export interface ClaimedRow {
  seq: string;
  key: string | null;
  /** The named queue that it was claimed from. */
  queue: string;
  /** Failed attempts so far. */
  attempts: number;
  /** Whether this claim took the event over from a relay that ended. */
  takenOver: boolean;
  /** How often a relay ended while it owned the event, since the event last completed a delivery attempt. */
  takeovers: number;
  /** Targets that already have the event. */
  done: readonly string[];
  /** Targets that a relay has decided it must still reach: destinations by name, handlers as `type:name`. */
  owed: readonly string[];
  /** Distinguishes a replay from earlier deliveries; `null` for an event that is not replayed. */
  replayId: string | null;
  /** Empty if the event was deleted from the log: there is nothing to deliver. */
  id: string;
  /** Why the event cannot be read, if so. It then has no id either. */
  unreadable?: unknown;
  aggregateType: string;
  aggregateId: string;
  type: string;
  schemaVersion: number;
  orderingKey: string | null;
  /** JSON text; `undefined` if it exceeds the inline limit, alone or with the headers, and must be loaded. */
  payloadJson: string | undefined;
  /** JSON text; also `{}` if it exceeds the inline limit by itself and is loaded with the payload. */
  headersJson: string;
  createdAtMs: number;
  /** After this many failed attempts it is a dead letter, whatever the policies say; `undefined` if they decide. */
  attemptsMax?: number | undefined;
  /** Destinations for which earlier events of its key are on the shelf: this one must not pass them there. */
  shelved: readonly string[];
}

export interface ClaimRequest {
  token: string;
  /** The named queue to claim from. Default `default`. */
  queue?: string;
  /** Only ready rows above this seq; `'0'` for all. */
  floor: string;
  readyMax: number;
  dueMax: number;
  /** Keys to exclude. */
  exceptKeys: readonly string[];
  /** Larger payloads and headers are not returned. Negative: nothing is read from the log, `readClaimed` does that. */
  inlineBytesMax: number;
  /** After the result of a claim was lost: every seq that this relay has claimed. */
  knownSeqs: readonly string[] | undefined;
  /** Nothing below `mark` is in the queue, as long as `requeues` and `server` are unchanged. */
  lowWater: LowWaterMark;
  /** Whether to sample the queue for the low-water mark. */
  sample: boolean;
  /** Whether to claim only from this relay's shards: its part of the keys among all live relays. */
  ownShards: boolean;
  /** How many suspects may be claimed: events that two or more relays owned when they ended. */
  suspectMax: number;
  /** What this relay can deliver to. Events that are owed only to other targets are left to the relays that have them. */
  targets: readonly string[];
}

/** A seq below which nothing is in the queue, and the conditions for that. */
export interface LowWaterMark {
  mark: string;
  requeues: string;
  server: string;
}

/** The input of the low-water mark, all of one snapshot. */
export interface QueueSample {
  /** How often events were requeued. */
  requeues: string;
  /** The server: its start time and its timeline. */
  server: string;
  /** The lowest seq in the queue at or above the mark, in any state; `null` if there is none. */
  lowest: string | null;
  /** The oldest running transaction, and the first one that had not begun. */
  xmin: string;
  xmax: string;
}

export interface ClaimResult {
  rows: ClaimedRow[];
  /** How many ready rows were examined: fewer than `readyMax` means that there are no more above the floor. */
  examined: number;
  /** The highest ready seq that was examined. */
  reached: string | undefined;
  /** How many waiting rows were due: fewer than `dueMax` means that there are no more. */
  dueExamined: number;
  /** Events behind a waiting event of their key; `defer` takes them out of the ready index. */
  blocked: string[];
  /** When the next waiting event is due. */
  dueInMs: number | undefined;
  /** How many relays share the keys: 1 for a claim without shards. */
  relays: number;
  /** How many events became suspects, which are claimed one by one. */
  newSuspects: number;
  sample: QueueSample | undefined;
}

export async function claim(query: ArrayQuery, schema: string, request: ClaimRequest): Promise<ClaimResult> {
  const queue = request.queue ?? defaultQueue;
  const { rows } = await query(claimSql(schema), [
    request.token,
    request.floor,
    request.readyMax,
    request.dueMax,
    request.exceptKeys,
    request.inlineBytesMax,
    request.knownSeqs ?? null,
    request.lowWater.mark,
    request.lowWater.requeues,
    request.lowWater.server,
    request.sample,
    request.ownShards,
    request.suspectMax,
    request.targets,
    queue,
  ]);
  const scan = JSON.parse(rows[0]?.[7] as string) as Scan;
  return {
    rows: toClaimedRows(scan, rows, queue),
    examined: scan.examined,
    reached: scan.reached ?? undefined,
    dueExamined: scan.dueExamined,
    blocked: scan.blocked ?? [],
    dueInMs: scan.dueInMs ?? undefined,
    relays: scan.relays,
    newSuspects: scan.suspects ?? 0,
    sample: scan.sample ?? undefined,
  };
}

/** See migrations/routines/claim_next.sql for the contract and the rationale. */
export const claimNextSql = perSchema(
  (
    s,
  ) => `select * from ${s}.claim_next($1::bigint, $2::bigint[], $3::integer, $4::bigint[], $5::bigint, $6::bigint, $7::text,
  $8::text[], $9::text)`,
);

/** See migrations/routines/claim_one.sql for the contract and the rationale. */
export const claimOneSql = perSchema(
  (s) => `select * from ${s}.claim_one($1::bigint, $2::text, $3::integer, $4::bigint, $5::bigint, $6::text)`,
);

export interface ClaimNextRequest
  extends Pick<
    ClaimRequest,
    'token' | 'queue' | 'exceptKeys' | 'inlineBytesMax' | 'knownSeqs' | 'lowWater' | 'targets'
  > {
  /** Whether to examine only the one event, if there is one. The caller must soon examine everything. Default false. */
  quick?: boolean;
}

/**
 * Why nothing was claimed. `more`: there are several events. `raced`: another relay is claiming it. `other`: the event needs
 * `claim`.
 */
export type ClaimNextResult = ClaimResult | 'more' | 'raced' | 'other';

/** Claims a single event faster than `claim`. If there is more to do, call `claim` instead. */
export async function claimNext(
  query: ArrayQuery,
  schema: string,
  request: ClaimNextRequest,
): Promise<ClaimNextResult> {
  const { token, queue = defaultQueue, exceptKeys, inlineBytesMax, knownSeqs, lowWater, targets } = request;
  const claimed = request.quick && exceptKeys.length === 0 ? await claimOne(query, schema, request) : undefined;
  if (claimed !== undefined) return oneExamined(claimed);
  const { mark, requeues, server } = lowWater;
  const values = [token, exceptKeys, inlineBytesMax, knownSeqs ?? null, mark, requeues, server, targets, queue];
  const { rows } = await query(claimNextSql(schema), values);
  const [seen, fits, dueInMs, seq, key, attempts, done, takeovers, owed, replayId, ...event] = rows[0] as NextRow;
  const examined = Number(seen);
  if (seq === null) {
    if (examined > 1) return 'more';
    if (fits) return 'raced';
    if (examined === 1 || (dueInMs !== null && dueInMs <= 0)) return 'other';
  }
  const row = event[0] === null ? undefined : [seq, ...event];
  const begun = { attempts: attempts ?? 0, done, takeovers: takeovers ?? 0, owed, replayId };
  const result = oneExamined(seq === null ? undefined : toClaimedRow(seq, key, queue, begun, row));
  return { ...result, examined, dueInMs: dueInMs ?? undefined };
}

/** Claims the only ready event, if it is an ordinary one. Prepared, because nothing else is sent as often by a quiet relay. */
async function claimOne(
  query: ArrayQuery,
  schema: string,
  { token, queue = defaultQueue, inlineBytesMax, lowWater: { mark, requeues, server } }: ClaimNextRequest,
): Promise<ClaimedRow | undefined> {
  const { rows } = await query(claimOneSql(schema), [token, queue, inlineBytesMax, mark, requeues, server], true);
  const [seq, key, ...event] = rows[0] as [seq: string | null, key: string | null, ...event: unknown[]];
  if (seq === null) return undefined;
  return toClaimedRow(seq, key, queue, undefined, event[0] === null ? undefined : [seq, ...event]);
}

function oneExamined(row: ClaimedRow | undefined): ClaimResult {
  return {
    rows: row ? [row] : [],
    examined: row ? 1 : 0,
    reached: row?.seq,
    dueExamined: 0,
    blocked: [],
    dueInMs: undefined,
    relays: 1,
    newSuspects: 0,
    sample: undefined,
  };
}

type NextRow = [
  seen: string,
  fits: boolean,
  dueInMs: number | null,
  seq: string | null,
  key: string | null,
  attempts: number | null,
  done: string[] | null,
  takeovers: number | null,
  owed: string[] | null,
  replayId: string | null,
  ...event: unknown[],
];

/** The first row of the result: what was claimed, in order of seq, and the state of the queue. */
interface Scan {
  seqs: string | null;
  keys: string | null;
  takenOver: string[] | null;
  /** Rows that have failed before, have reached or are owed to some targets, are replayed, or were taken over. */
  begun: Record<string, Begun> | null;
  shelved: Record<string, string[]> | null;
  examined: number;
  reached: string | null;
  dueExamined: number;
  blocked: string[] | null;
  dueInMs: number | null;
  relays: number;
  suspects: number | null;
  sample: QueueSample | null;
}

interface Begun {
  attempts: number;
  done: string[] | null;
  takeovers: number;
  owed: string[] | null;
  replayId: string | null;
}

const none: readonly string[] = [];

/** Both lists are in order of seq; a seq without a row in the log was deleted from it. */
function toClaimedRows(scan: Scan, rows: unknown[][], queue: string): ClaimedRow[] {
  if (scan.seqs === null) return [];
  const keys = (scan.keys as string).split(',');
  const takenOver = new Set(scan.takenOver);
  let next = 1;
  return scan.seqs.split(',').map((seq, index) => {
    const row = rows[next]?.[0] === seq ? rows[next++] : undefined;
    const claimed = toClaimedRow(seq, keys[index] || null, queue, scan.begun?.[seq], row);
    claimed.takenOver = takenOver.has(seq);
    claimed.shelved = scan.shelved?.[seq] ?? none;
    return claimed;
  });
}

/** `row` is the event's row in the log, if there is one. */
function toClaimedRow(
  seq: string,
  key: string | null,
  queue: string,
  begun: Begun | undefined,
  row: unknown[] | undefined,
): ClaimedRow {
  const claimed: ClaimedRow = {
    seq,
    key,
    queue,
    attempts: begun?.attempts ?? 0,
    takenOver: false,
    takeovers: begun?.takeovers ?? 0,
    done: begun?.done ?? none,
    owed: begun?.owed ?? none,
    replayId: begun?.replayId ?? null,
    shelved: none,
    id: '',
    aggregateType: '',
    aggregateId: '',
    type: '',
    schemaVersion: 1,
    orderingKey: null,
    payloadJson: undefined,
    headersJson: '{}',
    createdAtMs: Number.NaN,
    attemptsMax: undefined,
  };
  if (row) fillIn(claimed, row);
  return claimed;
}

/** Copies the columns of the log into the event, field by field: spreading a second object takes twice as long. */
function fillIn(claimed: ClaimedRow, row: readonly unknown[]): void {
  claimed.id = row[1] as string;
  claimed.aggregateType = row[2] as string;
  claimed.aggregateId = row[3] as string;
  claimed.type = row[4] as string;
  claimed.schemaVersion = (row[5] as number | null) ?? 1;
  claimed.orderingKey = row[6] as string | null;
  claimed.payloadJson = (row[7] as string | null) ?? undefined;
  claimed.headersJson = (row[8] as string | null) ?? '{}';
  claimed.createdAtMs = Number(row[9]) / 1_000;
  claimed.attemptsMax = (row[10] as number | null) ?? undefined;
}

/** As claim_many reads them, but without the payload and without headers over the inline limit. */
const readClaimedSql = perSchema(
  (s) => `
select l.seq, l.id, l.aggregate_type, l.aggregate_id, l.event_type, nullif(l.schema_version, 1), l.ordering_key, null,
       case when octet_length(t.headers) <= ${inlineBytesMax} then nullif(t.headers, '{}') end,
       (date_part('epoch', l.created_at) * 1000000)::bigint, l.attempts_max
  from ${s}.outbox_events l cross join lateral (select l.headers::text as headers offset 0) t where l.seq = $1`,
);

/** Reads claimed events from the log one by one, with the reason for each that cannot be read. Payloads are left out. */
export async function readClaimed(query: ArrayQuery, schema: string, rows: readonly ClaimedRow[]): Promise<void> {
  for (const claimed of rows) {
    try {
      const { rows: found } = await query(readClaimedSql(schema), [claimed.seq]);
      if (found[0]) fillIn(claimed, found[0]);
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      claimed.unreadable = error;
    }
  }
}

/** Whether a claim was refused because the relay has ended, or is not registered in this database. */
export function isRelayEnded(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === 'PC001';
}

/** Compares two seqs, which are text, as numbers. */
export function compareSeq(a: string, b: string): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

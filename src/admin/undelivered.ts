import type { Executor } from '../database/executor.ts';
import { cancel } from '../outbox/operating/cancel.ts';
import { listUndelivered } from '../outbox/operating/list-undelivered.ts';
import { readLogEnd } from '../outbox/operating/read-log-end.ts';
import type { UndeliveredResult } from '../outbox/operating/release.ts';
import { release } from '../outbox/operating/release.ts';
import { undefer } from '../outbox/operating/undefer.ts';
import { chunkSizeMax, toSeqs } from './chunks.ts';
import { checkReason } from './destinations.ts';
import type { UndeliveredTarget } from './filters.ts';
import { checkEventTarget } from './filters.ts';

export interface CancelOptions {
  /** Why, for the story of the events: at most 500 characters. Default: none. */
  reason?: string;
}

export function releaseEvents(db: Executor, schema: string, target: UndeliveredTarget): Promise<UndeliveredResult> {
  return change(db, schema, target, (seqs) => release(db, schema, seqs));
}

export async function cancelEvents(
  db: Executor,
  schema: string,
  target: UndeliveredTarget,
  options: CancelOptions,
): Promise<UndeliveredResult> {
  const reason = checkReason('cancel', options);
  return change(db, schema, target, (seqs) => cancel(db, schema, seqs, reason));
}

async function change(
  db: Executor,
  schema: string,
  target: UndeliveredTarget,
  run: (seqs: readonly string[]) => Promise<UndeliveredResult>,
): Promise<UndeliveredResult> {
  const total: UndeliveredResult = { count: 0, inFlight: 0 };
  for await (const seqs of seqsOf(db, schema, target)) {
    const { count, inFlight } = await run(seqs);
    total.count += count;
    total.inFlight += inFlight;
    // Not left for the end: a later chunk may fail, and what was deferred behind this one would go on waiting.
    await undefer(db, schema, seqs);
  }
  return total;
}

/** The seqs that are meant, lowest first, in lists that fit one statement. With conditions only what there is by now. */
async function* seqsOf(db: Executor, schema: string, target: UndeliveredTarget): AsyncGenerator<string[]> {
  const checked = checkEventTarget(target);
  if ('references' in checked) {
    yield* (await toSeqs(db, schema, checked.references)).lists;
    return;
  }
  const { lastSeq: seqUntil } = await readLogEnd(db, schema);
  for (let after: string | undefined = '0'; after !== undefined; ) {
    const chunk = { after, limit: chunkSizeMax, seqUntil };
    const seqs: string[] = await listUndelivered(db, schema, checked.conditions, chunk);
    if (seqs.length > 0) yield seqs;
    after = seqs.length < chunkSizeMax ? undefined : seqs.at(-1);
  }
}

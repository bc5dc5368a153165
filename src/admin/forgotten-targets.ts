import type { Executor } from '../database/executor.ts';
import { isStorable } from '../database/storable-text.ts';
import { PostcommitError } from '../errors.ts';
import type { ForgetCursor, ForgetPreview, ForgottenEvents } from '../outbox/operating/forget.ts';
import { forget, previewForget } from '../outbox/operating/forget.ts';
import type { BulkOptions } from './chunks.ts';
import { checkBulkOptions } from './chunks.ts';
import { noSuchDestination } from './destinations.ts';

export interface ForgetOptions extends BulkOptions {
  /** Only count what would happen, change nothing. Default `false`. */
  dryRun?: boolean;
}

/** What happened to the events. With `dryRun` what would happen; each count then stops at 100,000. */
export interface ForgetResult extends ForgottenEvents {
  /** Live relays that have the target. Filled only with `dryRun`; otherwise a target in use is an error. */
  usedBy: string[];
  /** Events not changed because a relay has claimed them, or another transaction has locked them: call it again if there are any. 0 if interrupted. */
  inFlight: number;
  /** Present when `signal` stopped it before its end. Call it again to continue. */
  interrupted?: true;
}

/** Rows per statement: it holds its locks for about 10 ms. */
const chunkRowsMax = 1_000;

export async function forgetTarget(
  db: Executor,
  schema: string,
  target: string,
  options: ForgetOptions,
): Promise<ForgetResult> {
  const { dryRun = false, signal, onProgress } = checkBulkOptions(options, 'forget', ['dryRun']);
  // A text that PostgreSQL cannot store is not the name of a target, and would cause a different error.
  if (typeof target !== 'string' || !isStorable(target)) throw await noSuchDestination(db, schema, target);
  const { known, usedBy, ...events } = await previewForget(db, schema, target);
  if (!known && usedBy.length === 0 && isNothing(events)) throw await noSuchTarget(db, schema, target);
  if (dryRun) return { ...events, usedBy, inFlight: 0 };
  const result: ForgetResult = {
    sent: 0,
    discarded: 0,
    stillWaiting: 0,
    queued: 0,
    deadLetters: 0,
    usedBy: [],
    inFlight: 0,
  };
  for (let reached: ForgetCursor | undefined; ; ) {
    if (signal?.aborted) return { ...result, interrupted: true };
    const chunk = await forget(db, schema, target, chunkRowsMax, reached);
    if (chunk.inUse) throw await inUse(db, schema, target);
    for (const name of counted) result[name] += chunk[name];
    result.inFlight = chunk.inFlight;
    onProgress?.(counted.reduce((sum, name) => sum + result[name], 0));
    if (chunk.finished) return result;
    reached = chunk;
  }
}

async function noSuchTarget(db: Executor, schema: string, target: string): Promise<PostcommitError> {
  const { code, detail } = await noSuchDestination(db, schema, target);
  return new PostcommitError(code, `${detail} The name of a handler includes its event type: type:name.`);
}

const counted = ['sent', 'discarded', 'stillWaiting', 'queued', 'deadLetters'] as const;

function isNothing(events: Omit<ForgetPreview, 'known' | 'usedBy'>): boolean {
  return counted.every((name) => events[name] === 0);
}

async function inUse(db: Executor, schema: string, target: string): Promise<PostcommitError> {
  const { usedBy } = await previewForget(db, schema, target);
  return new PostcommitError(
    'POSTCOMMIT_E_TARGET_IN_USE',
    `Target: ${target}. Live relays that have it: ${usedBy.join(', ')}.`,
  );
}

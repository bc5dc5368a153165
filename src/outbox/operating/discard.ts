import type { Executor } from '../../database/executor.ts';
import { readJson } from '../read-json.ts';
import type { Chunk, DeadLetterSelection } from './conditions.ts';
import { whereSelected } from './conditions.ts';
import type { ResolvedChunk } from './requeue.ts';
import { resolveSql } from './requeue.ts';

const discardSql = resolveSql('discard');

/** Discards dead letters. The rows stay as history; a key that one of them blocked continues. */
export async function discard(
  db: Executor,
  schema: string,
  selection: DeadLetterSelection,
  chunk: Chunk,
): Promise<ResolvedChunk> {
  const conditions = whereSelected(selection, chunk);
  const [result] = await readJson<ResolvedChunk>(db, conditions.into(discardSql(schema)), conditions.values);
  return result as ResolvedChunk;
}

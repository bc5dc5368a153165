import { PostcommitError } from '../../errors.ts';
import type { FileRequest, MigrationFile } from './migration-file.ts';

interface Journal {
  version: string;
  dialect: string;
  entries: { idx: number; version: string; when: number; tag: string; breakpoints: boolean }[];
}

const journalPath = 'meta/_journal.json';

/**
 * Drizzle applies what is in the journal, in its order, if `when` is after the last one that the database has. The file has no
 * `--> statement-breakpoint`, so Drizzle sends it as a whole.
 */
export function drizzleFiles({ migration, at, read }: FileRequest): MigrationFile[] {
  const text = read(journalPath);
  const journal = text === undefined ? { version: '7', dialect: 'postgresql', entries: [] } : parseJournal(text);
  const last = journal.entries.at(-1);
  const idx = (last?.idx ?? -1) + 1;
  const tag = `${String(idx).padStart(4, '0')}_postcommit`;
  const when = Math.max(at.getTime(), (last?.when ?? 0) + 1);
  const entries = [...journal.entries, { idx, version: journal.version, when, tag, breakpoints: true }];
  return [
    { path: `${tag}.sql`, text: migration.up },
    { path: journalPath, text: `${JSON.stringify({ ...journal, entries }, null, 2)}\n`, replaces: true },
  ];
}

function parseJournal(text: string): Journal {
  try {
    const journal = JSON.parse(text) as Journal;
    if (Array.isArray(journal.entries) && journal.dialect === 'postgresql') return journal;
  } catch {
    // Refused below.
  }
  throw new PostcommitError('POSTCOMMIT_E_USAGE', `${journalPath} is not a journal of drizzle-kit for PostgreSQL.`);
}

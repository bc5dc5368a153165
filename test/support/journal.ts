import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** One step of one handler call. */
export interface JournalEntry {
  phase: 'begin' | 'end' | 'fail';
  relay: string;
  seq: string;
  id: string;
  /** Ordering key; `null` for none. */
  key: string | null;
  handler: string;
  attempt: number;
  idempotencyKey: string;
}

/**
 * What handlers did, in the order in which they did it, over all processes: each step is one append to one file, which
 * the kernel orders. It survives SIGKILL of its writer and does not need the database.
 */
export class Journal {
  readonly path: string;

  constructor(path = join(mkdtempSync(join(tmpdir(), 'postcommit-journal-')), 'journal')) {
    this.path = path;
  }

  write(entry: JournalEntry): void {
    appendFileSync(this.path, `${JSON.stringify(entry)}\n`);
  }

  read(): JournalEntry[] {
    let text = '';
    try {
      text = readFileSync(this.path, 'utf8');
    } catch {
      return []; // Nothing written yet.
    }
    return text
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line) as JournalEntry);
  }

  /** Calls that worked, in order, as seqs. */
  ends(): string[] {
    return this.read()
      .filter(({ phase }) => phase === 'end')
      .map(({ seq }) => seq);
  }

  remove(): void {
    rmSync(dirname(this.path), { recursive: true, force: true });
  }
}

export interface Expected {
  seq: string;
  key: string | null;
}

/** What a journal says about G2 and G4. Empty lists and zeros are what one wants. */
export interface Findings {
  /** Events that no handler finished. */
  lost: string[];
  /** A call began although an earlier event of its key had not been delivered. */
  orderViolations: string[];
  /** A call began while another one of the same key was under way in a live relay. */
  overlaps: string[];
  /** Successful calls beyond the first of each event. */
  duplicates: number;
}

/**
 * Checks a journal against the events that committed. `givenUp` are dead letters: they need no delivery and hold no
 * other event back. `killed` relays write no end of their calls, so these do not count as overlapping.
 */
export function examine(
  entries: readonly JournalEntry[],
  expected: readonly Expected[],
  { givenUp = [], killed = [] }: { givenUp?: readonly string[]; killed?: readonly string[] } = {},
): Findings {
  const lines = new Map<string, string[]>();
  const positions = new Map<string, number>();
  const excused = new Set(givenUp);
  for (const { seq, key } of expected) {
    if (key === null || excused.has(seq)) continue;
    const line = lines.get(key) ?? [];
    lines.set(key, line);
    positions.set(seq, line.length);
    line.push(seq);
  }
  const done = new Set<string>();
  const progress = new Map<string, number>();
  const open = new Map<string, JournalEntry>();
  const findings: Findings = { lost: [], orderViolations: [], overlaps: [], duplicates: 0 };
  for (const entry of entries) {
    const { key, seq, relay } = entry;
    if (entry.phase === 'begin') {
      const position = positions.get(seq);
      if (key !== null && position !== undefined && position > (progress.get(key) ?? 0)) {
        findings.orderViolations.push(`${seq} of ${key} began in ${relay} before ${lines.get(key)?.[position - 1]}`);
      }
      const other = key === null ? undefined : open.get(key);
      if (other && !killed.includes(other.relay)) {
        findings.overlaps.push(`${seq} began in ${relay} while ${other.seq} of ${key} ran in ${other.relay}`);
      }
      if (key !== null) open.set(key, entry);
      continue;
    }
    if (key !== null && open.get(key)?.seq === seq && open.get(key)?.relay === relay) open.delete(key);
    if (entry.phase === 'fail') continue;
    if (done.has(seq)) findings.duplicates++;
    done.add(seq);
    if (key !== null) advance(lines.get(key) ?? [], key, done, progress);
  }
  findings.lost = expected.filter(({ seq }) => !done.has(seq) && !excused.has(seq)).map(({ seq }) => seq);
  return findings;
}

function advance(line: readonly string[], key: string, done: ReadonlySet<string>, progress: Map<string, number>): void {
  let at = progress.get(key) ?? 0;
  while (at < line.length && done.has(line[at] as string)) at++;
  progress.set(key, at);
}

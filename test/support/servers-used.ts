import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

// Tests run in processes of their own; a file is what they and the reporter share.
const variable = 'POSTCOMMIT_TEST_SERVERS_FILE';

/** In the main process, before the workers start: they inherit the variable. */
export function startServerRecord(): void {
  process.env[variable] ??= join(mkdtempSync(join(tmpdir(), 'postcommit-test-')), 'servers');
}

/** Notes that a test used this server, e.g. `PostgreSQL 18.4`. */
export function recordServer(nameAndVersion: string): void {
  const file = process.env[variable];
  if (file !== undefined) appendFileSync(file, `${nameAndVersion}\n`);
}

/** Each server once, and forgets the record. */
export function takeServerRecord(): string[] {
  const file = process.env[variable];
  if (file === undefined) return [];
  try {
    return [...new Set(readFileSync(file, 'utf8').trim().split('\n'))].filter(Boolean).sort().reverse();
  } catch {
    return [];
  } finally {
    rmSync(dirname(file), { recursive: true, force: true });
    delete process.env[variable];
  }
}

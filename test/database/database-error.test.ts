import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { codedDatabaseError, isUnreadable } from '../../src/database/database-error.ts';
import { migrate } from '../../src/index.ts';

describe('POSTCOMMIT_E_DATABASE_UNREACHABLE', () => {
  it('is the code of a Unix socket that is not there', async () => {
    const connectionString = `socket://${join(tmpdir(), 'no-such-folder')}?db=postgres`;
    await expect(migrate({ connectionString })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
      cause: { code: 'ENOENT', syscall: 'connect' },
    });
  });

  it('is the code of a port that nothing listens on', async () => {
    await expect(migrate({ connectionString: 'postgres://127.0.0.1:1/postgres' })).rejects.toMatchObject({
      code: 'POSTCOMMIT_E_DATABASE_UNREACHABLE',
      cause: { code: 'ECONNREFUSED' },
    });
  });

  it('is not the code of a missing file', async () => {
    const missing = await readFile(join(tmpdir(), 'no-such-file')).catch((error: unknown) => error);
    expect(missing).toMatchObject({ code: 'ENOENT', syscall: 'open' });
    expect(codedDatabaseError(missing)).toBe(missing);
  });
});

describe('a stored value that cannot be read', () => {
  it.each([
    ['22P05', 'no equivalent in the encoding', true],
    ['54000', 'too long', true],
    ['XX001', 'missing chunk number 0 for toast value 16402 in pg_toast_16389', true],
    ['XX002', 'index "outbox_events_pkey" contains corrupted page at block 3', true],
    ['XX000', 'invalid memory alloc request size 1073741824', true],
    ['XX000', 'cache lookup failed', false],
    ['58030', 'could not read blocks 0..0 in file "base/5/16402"', false],
    ['57014', 'canceling statement due to statement timeout', false],
  ])('%s: %s: %s', (code, message, expected) => {
    expect(isUnreadable(Object.assign(new Error(message), { code }))).toBe(expected);
  });
});

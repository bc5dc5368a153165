import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { codedDatabaseError } from '../../src/database/database-error.ts';
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

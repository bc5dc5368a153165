import { afterAll, beforeAll, inject } from 'vitest';
import type { EmbeddedPostgres } from '../../src/embedded/postgres-server.ts';
import { startTestPostgres } from './postgres-server.ts';

/**
 * A server for all tests of this file that waits for the disk, as the one of a service does. Call it at the top of a file that
 * runs the whole doctor, which calls the shared servers unsafe.
 */
export function durableServer(): { readonly url: string } {
  let server: EmbeddedPostgres | undefined;
  beforeAll(async () => {
    const settings = { fsync: 'on', full_page_writes: 'on', wal_level: 'logical' };
    if (!inject('serverIsGiven')) server = await startTestPostgres({ settings });
  });
  afterAll(() => server?.stop());
  return {
    get url() {
      return server?.connectionString ?? inject('serverUrl');
    },
  };
}

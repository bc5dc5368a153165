import {
  type EmbeddedPostgres,
  type EmbeddedPostgresOptions,
  startEmbeddedPostgres,
} from '../../src/embedded/postgres-server.ts';

/**
 * A server of a test's own, for tests that stop it, change its settings or its files. Others use the shared ones
 * (`serverUrlOf` of postgres-versions.ts).
 *
 * It never waits for the disk, as the shared ones: that took half of the time of tests that create databases. A killed
 * server loses nothing by it, only a machine that loses its power does.
 */
export function startTestPostgres(options: EmbeddedPostgresOptions = {}): Promise<EmbeddedPostgres> {
  const settings = { fsync: 'off', full_page_writes: 'off', ...options.settings };
  return startEmbeddedPostgres({ ...options, settings });
}

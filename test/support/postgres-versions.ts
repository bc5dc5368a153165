import { inject } from 'vitest';
import type { EmbeddedPostgresVersion } from '../../src/embedded/postgres-binaries.ts';

/** Of the server that the tests share. */
export const sharedVersion = inject('serverVersion') as EmbeddedPostgresVersion;

/**
 * What tests run on where versions could differ: the newest and the oldest that are supported. Against a server that was
 * given (POSTCOMMIT_TEST_DATABASE_URL, `npm run test:postgres`), only that one.
 */
export const postgresVersions: readonly EmbeddedPostgresVersion[] = inject('serverIsGiven')
  ? [sharedVersion]
  : [18, 14];

/** The shared server of one of `postgresVersions`. */
export function serverUrlOf(version: EmbeddedPostgresVersion): string {
  const url = version === sharedVersion ? inject('serverUrl') : inject('oldServerUrl');
  if (url === undefined) throw new Error(`There is no shared server of PostgreSQL ${version} in this run.`);
  return url;
}

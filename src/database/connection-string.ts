import pg from 'pg';
import { PostcommitError } from '../errors.ts';

/**
 * Refuses what `pg` would misread: a URL of another kind, or `host=… dbname=…`, ends at whatever database it finds on
 * this host. The message never quotes the text, which may hold a password.
 */
export function checkConnectionString(text: unknown): string {
  // A path is a Unix socket.
  if (typeof text === 'string' && (/^(postgres|postgresql|socket):\/\//i.test(text) || text.startsWith('/'))) {
    try {
      new pg.Client({ connectionString: text });
      return text;
    } catch {
      // An invalid port, or characters in the password that a URL cannot hold.
    }
  }
  throw new PostcommitError(
    'POSTCOMMIT_E_BAD_OPTION',
    'connectionString must be a PostgreSQL URL, e.g. postgres://user:password@host:5432/database, with special characters percent-encoded.',
  );
}

import pg from 'pg';
import { startEmbeddedPostgres } from '../src/embedded/postgres-server.ts';

/** The PostgreSQL that a run measures on. */
export interface Server {
  /** Its version, e.g. `18.4`. */
  version: string;
  /** Drops the database of this name if there is one and creates it anew; returns its connection string. */
  createDatabase(name: string): Promise<string>;
  dropDatabase(name: string): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts a PostgreSQL with durable commits and otherwise default settings, or uses the one at `databaseUrl`. There it
 * works in databases of its own and leaves all others alone.
 */
export async function startServer(
  databaseUrl: string | undefined,
  settings: Record<string, string> = {},
): Promise<Server> {
  const embedded = databaseUrl
    ? undefined
    : await startEmbeddedPostgres({ settings: { fsync: 'on', synchronous_commit: 'on', ...settings } });
  const connectionString = embedded?.connectionString ?? (databaseUrl as string);
  const admin = new pg.Client({ connectionString });
  try {
    await admin.connect();
    const version = await show(admin, 'server_version');
    await requireSettings(admin, { fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on', ...settings });
    return {
      version: version.split(' ')[0] ?? version,
      async createDatabase(name) {
        await admin.query(`drop database if exists ${pg.escapeIdentifier(name)} with (force)`);
        await admin.query(`create database ${pg.escapeIdentifier(name)}`);
        const url = new URL(connectionString);
        url.pathname = `/${encodeURIComponent(name)}`;
        return url.href;
      },
      async dropDatabase(name) {
        await admin.query(`drop database if exists ${pg.escapeIdentifier(name)} with (force)`);
      },
      async stop() {
        await admin.end();
        await embedded?.stop();
      },
    };
  } catch (error) {
    await admin.end().catch(() => {});
    await embedded?.stop();
    throw error;
  }
}

/**
 * A queue on a server that may forget its commits is a different product, and some contenders need a setting; no figure
 * from a server without is printed.
 */
async function requireSettings(admin: pg.Client, settings: Record<string, string>): Promise<void> {
  for (const [setting, needed] of Object.entries(settings)) {
    const value = await show(admin, setting);
    if (value !== needed) throw new Error(`On this server ${setting} is ${value}; the benchmark needs ${needed}.`);
  }
}

async function show(client: pg.Client, setting: string): Promise<string> {
  const { rows } = await client.query('select current_setting($1) as value', [setting]);
  return rows[0].value;
}

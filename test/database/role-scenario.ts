import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { grantsSql } from '../../src/index.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { quietPool } from '../support/quiet-pool.ts';

export const roleKinds = ['emitter', 'relay', 'reader', 'consumer'] as const;
export type RoleKind = (typeof roleKinds)[number];

/** A database with one role of each kind, made by the grants that `postcommit grants --create` prints. */
export class RoleScenario {
  readonly serverUrl: string;
  readonly db: TestDatabase;
  readonly names: Readonly<Record<RoleKind, string>>;
  readonly #pools: pg.Pool[] = [];

  private constructor(serverUrl: string, db: TestDatabase, names: Record<RoleKind, string>) {
    this.serverUrl = serverUrl;
    this.db = db;
    this.names = names;
  }

  static async create(serverUrl: string): Promise<RoleScenario> {
    const db = await createTestDatabase({ serverUrl });
    // Roles belong to the server. A name that has to be quoted, so that quoting is tested throughout.
    const suffix = randomBytes(4).toString('hex');
    const names = Object.fromEntries(roleKinds.map((kind) => [kind, `The "${kind}" ${suffix}`]));
    const scenario = new RoleScenario(serverUrl, db, names as Record<RoleKind, string>);
    // As in a database that revokes everything from PUBLIC: the grants must contain all that a role needs.
    await db.query('revoke execute on all routines in schema postcommit from public');
    await db.query(grantsSql({ ...scenario.names, create: true }));
    for (const name of Object.values(names)) await db.query(`alter role ${quote(name)} password 'secret'`);
    return scenario;
  }

  /** The database's address, to log in as this role. */
  url(kind: RoleKind): string {
    const url = new URL(this.db.url);
    url.username = encodeURIComponent(this.names[kind]);
    url.password = 'secret';
    return url.href;
  }

  pool(kind: RoleKind): pg.Pool {
    const pool = quietPool(this.url(kind), { max: 4 });
    this.#pools.push(pool);
    return pool;
  }

  async close(): Promise<void> {
    await Promise.all(this.#pools.map((pool) => pool.end()));
    const roles = Object.values(this.names).map(quote).join(', ');
    await this.db.query(`drop owned by ${roles} cascade; drop role ${roles}`);
    await this.db.close();
  }
}

function quote(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

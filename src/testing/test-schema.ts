import { randomBytes } from 'node:crypto';
import type { ConnectionOptions } from '../database/connection-options.ts';
import { codedDatabaseError, sqlState } from '../database/database-error.ts';
import { dropOutboxSql, migrate } from '../database/migrate.ts';
import { openPool } from '../database/pool.ts';
import { PostcommitError } from '../errors.ts';
import { shown } from '../format.ts';
import { unknownOption } from '../suggest.ts';

/** Options of `createTestSchema()`. The role needs the right to create schemas in the database. */
export interface TestSchemaOptions extends ConnectionOptions {
  /**
   * How long `drop()` waits for a transaction that uses the schema, in milliseconds. Then it fails with
   * POSTCOMMIT_E_LOCK_TIMEOUT. Default 5,000.
   */
  dropTimeoutMs?: number;
}

/** An outbox in a schema of its own. */
export interface TestSchema extends AsyncDisposable {
  /** Pass it as `schema` to `createOutbox`, `createRelay` and `expectEmitted`. */
  readonly schema: string;
  /** Drops the schema with everything in it. May be called again. Stop relays and end transactions first. */
  drop(): Promise<void>;
}

const optionNames = ['connectionString', 'connection', 'dropTimeoutMs'];
const dropTimeoutMsDefault = 5_000;
const dropTimeoutMsMax = 60_000;

/**
 * Creates a schema with an empty outbox and inbox, for one test or one test file. Its name is random (`postcommit_test_` and 24
 * digits), so any number of tests and processes can share a database.
 *
 * @example
 * import { createTestSchema } from 'postcommit/testing';
 *
 * const { schema, drop } = await createTestSchema({ connectionString: 'postgres://localhost/shop_test' });
 * const testOutbox = createOutbox({ db: fromPg(pool), schema });
 * await drop();
 */
export async function createTestSchema(options: TestSchemaOptions): Promise<TestSchema> {
  const { dropTimeoutMs, ...connection } = resolve(options);
  const schema = `postcommit_test_${randomBytes(12).toString('hex')}`;
  await migrate({ ...connection, schema });
  let dropped: Promise<void> | undefined;
  const drop = () => {
    dropped ??= dropSchema(connection, schema, dropTimeoutMs).catch((error) => {
      dropped = undefined; // The caller may end what is in the way and try again.
      throw error;
    });
    return dropped;
  };
  return { schema, drop, [Symbol.asyncDispose]: drop };
}

function resolve(options: TestSchemaOptions): TestSchemaOptions & { dropTimeoutMs: number } {
  if (typeof options !== 'object' || options === null) throw refuse('createTestSchema() takes an object of options.');
  const unknown = unknownOption(options, optionNames);
  if (unknown !== undefined) throw refuse(`createTestSchema(): ${unknown}`);
  const dropTimeoutMs = options.dropTimeoutMs ?? dropTimeoutMsDefault;
  if (!Number.isInteger(dropTimeoutMs) || dropTimeoutMs < 1 || dropTimeoutMs > dropTimeoutMsMax) {
    throw refuse(`dropTimeoutMs must be a whole number from 1 to ${dropTimeoutMsMax}. Got ${shown(dropTimeoutMs)}.`);
  }
  return { ...options, dropTimeoutMs };
}

async function dropSchema(connection: ConnectionOptions, schema: string, timeoutMs: number): Promise<void> {
  const pool = await openPool(connection, 'postcommit testing');
  try {
    // One message, so that all of it runs on one connection.
    await pool.query(`begin; set local lock_timeout = ${timeoutMs}; ${dropOutboxSql(schema)} commit`);
  } catch (error) {
    if (sqlState(error) !== '55P03') throw codedDatabaseError(error);
    const why = `The schema ${schema} was not dropped: another session still used it after ${timeoutMs} ms (dropTimeoutMs). Stop relays, and end the transactions of the test.`;
    throw new PostcommitError('POSTCOMMIT_E_LOCK_TIMEOUT', why, { cause: error });
  } finally {
    await pool.end();
  }
}

function refuse(detail: string): PostcommitError {
  return new PostcommitError('POSTCOMMIT_E_BAD_OPTION', detail);
}

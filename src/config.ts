import type { PartitionChoice } from './database/migrate.ts';
import type { Handlers } from './relay/deliver/handlers.ts';
import type { RelayOptions } from './relay/options.ts';

/**
 * What `postcommit.config.ts` (or `.mts`, `.js`, `.mjs`, `.json`) exports: the options of the relay that
 * `postcommit relay` runs, and where the other commands find the outbox.
 *
 * DATABASE_URL replaces `connectionString`; `connection` applies to it as well. `--database-url` replaces both.
 */
export interface PostcommitConfig extends Partial<Omit<RelayOptions, 'schema' | 'handlers'>> {
  /** The schema that holds the outbox. `--schema` and POSTCOMMIT_SCHEMA come first. Default `postcommit`. */
  schema?: string | undefined;
  /**
   * What `postcommit migrate` begins a new outbox with: partitions of a day or a month, which retention drops whole, or
   * one table. An outbox that has events is left as it is; `postcommit partitions convert` changes it. Default `none`.
   */
  partitions?: PartitionChoice | undefined;
  /**
   * Named handlers by event type, or the path of a module whose default export they are, relative to the config file
   * (JSON cannot hold functions). Only `postcommit relay` needs them.
   */
  handlers?: Handlers | string;
}

/**
 * Gives a config file its types. Returns what it is given.
 *
 * @example
 * // postcommit.config.ts
 * export default defineConfig({
 *   connectionString: process.env.DATABASE_URL,
 *   handlers: { 'order.created': { 'send-receipt': async (event) => console.log(event.id) } },
 * });
 */
export function defineConfig(config: PostcommitConfig): PostcommitConfig {
  return config;
}

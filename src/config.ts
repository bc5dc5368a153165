import type { AlertThresholds } from './alerts/rules.ts';
import type { EventCatalogue } from './catalogue/catalogue.ts';
import type { PartitionChoice } from './database/migrate-options.ts';
import type { HandlersOf } from './relay/deliver/handlers.ts';
import type { RelayOptions } from './relay/options.ts';

/**
 * What `postcommit.config.ts` (or `.mts`, `.js`, `.mjs`, `.json`) exports: the options of the relay that
 * `postcommit relay` runs, and where the other commands find the outbox.
 *
 * DATABASE_URL replaces `connectionString`; `connection` applies to it as well. `--database-url` replaces both.
 */
export interface PostcommitConfig<Catalogue extends EventCatalogue = EventCatalogue>
  extends Partial<Omit<RelayOptions<Catalogue>, 'schema' | 'handlers'>> {
  /**
   * Several outboxes by name, each with its own options; those beside `outboxes` are the defaults of all. `postcommit relay` and
   * `postcommit dashboard` serve all of them, other commands the one that `--outbox <name>` selects. DATABASE_URL and
   * POSTCOMMIT_SCHEMA apply to outboxes without a database or schema of their own. Default: one outbox, described by the other
   * options.
   */
  outboxes?: Readonly<Record<string, OutboxConfig>> | undefined;
  /** The schema of the outbox. `--schema` and POSTCOMMIT_SCHEMA override it. Default `postcommit`. */
  schema?: string | undefined;
  /**
   * How `postcommit migrate` partitions the log of a new outbox: by day or month, so that retention drops whole partitions, or
   * not at all. It does not change a log with events; `postcommit partitions convert` does. Default `none`.
   */
  partitions?: PartitionChoice | undefined;
  /** Thresholds of the rules that `postcommit alerts` writes, e.g. `{ pendingMax: 5_000 }`. */
  alerts?: AlertThresholds | undefined;
  /**
   * Named handlers by event type, or the path of a module whose default export they are, relative to the config file
   * (JSON has no functions). Only `postcommit relay` needs them.
   */
  handlers?: HandlersOf<NoInfer<Catalogue>> | string;
}

/** One of several outboxes: what differs from the options that all have. */
export type OutboxConfig = Omit<PostcommitConfig, 'outboxes' | 'alerts' | 'http' | 'logger'>;

/**
 * Adds types to a config file. Returns its argument.
 *
 * @example
 * // postcommit.config.ts
 * export default defineConfig({
 *   connectionString: process.env.DATABASE_URL,
 *   handlers: { 'order.created': { 'send-receipt': async (event) => console.log(event.id) } },
 * });
 */
export function defineConfig<Catalogue extends EventCatalogue = EventCatalogue>(
  config: PostcommitConfig<Catalogue>,
): PostcommitConfig<Catalogue> {
  return config;
}

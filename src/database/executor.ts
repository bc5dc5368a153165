/** Runs SQL: the one method that Postcommit needs of a database handle. `pg` clients and pools have it. */
export interface Executor {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
}

/**
 * The same with rows as arrays: a claim transfers megabytes, and objects by column name cost twice the CPU. A statement that
 * is sent `often` may be kept prepared, where that is known to work.
 */
export type ArrayQuery = (text: string, values: unknown[], often?: boolean) => Promise<{ rows: unknown[][] }>;

/** A statement and its values. */
export interface Statement {
  text: string;
  values?: unknown[];
}

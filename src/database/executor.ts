/** The one method Postcommit needs of a database handle. `pg` clients and pools fit as they are. */
export interface Executor {
  query(text: string, values?: unknown[]): Promise<{ rows: Record<string, unknown>[] }>;
}

/**
 * The same with rows as arrays: a claim moves megabytes, and objects by column name cost twice the CPU. What is sent `often`
 * may be kept prepared, where that is known to work.
 */
export type ArrayQuery = (text: string, values: unknown[], often?: boolean) => Promise<{ rows: unknown[][] }>;

/** A statement and its values, for whoever sends it. */
export interface Statement {
  text: string;
  values?: unknown[];
}

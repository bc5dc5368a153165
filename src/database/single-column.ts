import { PostcommitError } from '../errors.ts';

/**
 * The value of a row's single column, whatever the column is called: clients rename columns, such as postgres.js with `transform`, Knex
 * with `postProcessResponse` and Prisma with an extension. `name` is its name in the statement. Anything but a text or null is
 * refused: an event that is taken for a duplicate by mistake is lost.
 */
export function singleColumn(row: unknown, name: string): string | null {
  const fields = typeof row === 'object' && row !== null ? Object.entries(row) : [];
  const [field, ...others] = fields.length > 1 ? fields.filter(([key]) => key === name) : fields;
  const value: unknown = field?.[1];
  if (others.length === 0 && (typeof value === 'string' || value === null)) return value;
  const found = fields.length === 0 ? 'none' : fields.map(([key]) => JSON.stringify(key)).join(', ');
  throw badAdapter(
    row === undefined
      ? `It returns no row of a statement whose row has the column "${name}".`
      : `It returns a row without a text in the column "${name}"; the columns that it has: ${found}.`,
  );
}

/** The rows of a result, which may be missing where something between the driver and the adapter changes results. */
export function requireRows(rows: unknown): Record<string, unknown>[] {
  if (Array.isArray(rows)) return rows;
  throw badAdapter('It returns a result without the list of its rows.');
}

function badAdapter(detail: string): PostcommitError {
  const advice = 'If a hook, a transform or an extension of the client changes rows, let it pass these on unchanged.';
  return new PostcommitError('POSTCOMMIT_E_BAD_ADAPTER', `${detail} ${advice}`);
}

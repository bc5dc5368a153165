import { createHash } from 'node:crypto';
import { PostcommitError } from '../errors.ts';

/** The schema used unless another one is given. */
export const defaultSchema = 'postcommit';

/** Quotes an identifier. The only place where a name becomes part of a statement. */
export function quoteIdentifier(name: string): string {
  // PostgreSQL truncates a longer name silently, so two names could mean one schema.
  const usable = typeof name === 'string' && name !== '' && name.isWellFormed() && !/\0|^pg_/.test(name);
  if (!usable || Buffer.byteLength(name) > 63) {
    throw new PostcommitError('POSTCOMMIT_E_BAD_SCHEMA_NAME', `Got ${JSON.stringify(name)}.`);
  }
  return `"${name.replaceAll('"', '""')}"`;
}

/**
 * Quotes a text, whatever `standard_conforming_strings` is. Values are bound; this is for statements that take no parameters, and for
 * those that are shown.
 */
export function quoteLiteral(text: string): string {
  const quoted = `'${text.replaceAll("'", "''")}'`;
  return text.includes('\\') ? `E${quoted.replaceAll('\\', '\\\\')}` : quoted;
}

/** The NOTIFY channel of an outbox. Hashed, because a channel name over 63 bytes makes NOTIFY fail. */
export function doorbellChannel(schema: string): string {
  return `postcommit_${createHash('sha256').update(schema).digest('hex').slice(0, 16)}`;
}

/**
 * A statement with the schema's name written in, built once per schema.
 *
 * @example
 * const countSql = perSchema((s) => `select count(*) from ${s}.outbox_queue`);
 * await db.query(countSql('postcommit'));
 */
export function perSchema(build: (quotedSchema: string) => string): (schema: string) => string {
  const built = new Map<string, string>();
  return (schema) => {
    let text = built.get(schema);
    if (text === undefined) {
      text = build(quoteIdentifier(schema));
      built.set(schema, text);
    }
    return text;
  };
}

/** How `pg` writes a value for the server. The package exports it, its types do not. */
declare module 'pg/lib/utils.js' {
  export function prepareValue(value: unknown): unknown;
}

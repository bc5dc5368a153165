/** Why a reader does not accept what a writer may write. `reader` and `writer`: what the two schemas say, as text. */
export interface Misfit {
  readonly rule: MisfitRule;
  /** Where in the payload: `items[].price`; empty for the payload itself. */
  readonly path: string;
  readonly reader?: string;
  readonly writer?: string;
  /** The types or values in question, the keyword, or the name of another field. */
  readonly about?: readonly string[];
}

export type MisfitRule =
  /** The writer may write a type that the reader does not accept. */
  | 'type'
  /** The writer may write a value that the reader does not list. */
  | 'value'
  /** The reader lists the values that it accepts, the writer does not. */
  | 'listed'
  /** The reader requires a field that the writer does not have. */
  | 'missing'
  /** The reader requires a field that the writer may leave out. */
  | 'optional'
  /** The reader has an optional field that the writer never writes. */
  | 'dropped'
  /** The writer has a field that the reader does not allow. */
  | 'unexpected'
  /** The writer may write any other fields, and the reader does not allow them. */
  | 'others'
  /** A limit of the reader is tighter. */
  | 'limit'
  /** A keyword of the reader that must be the same in both schemas, and is not. */
  | 'keyword'
  /** The two cannot be compared. */
  | 'unknown';

/** How much a misfit says against the alternative of a union that it was found in. */
const weights: Partial<Record<MisfitRule, number>> = { type: 100, value: 20, listed: 20 };

export function weightOf(misfits: readonly Misfit[]): number {
  return misfits.reduce((sum, { rule }) => sum + (weights[rule] ?? 1), 0);
}

/** One misfit for each rule and path: values and types of several alternatives come together. */
export function combined(misfits: readonly Misfit[]): Misfit[] {
  const found = new Map<string, Misfit>();
  for (const misfit of misfits) {
    const { rule, path, about = [] } = misfit;
    const key = rule === 'type' || rule === 'value' ? `${rule}\n${path}` : JSON.stringify(misfit);
    const before = found.get(key);
    if (before === undefined) found.set(key, misfit);
    else found.set(key, { ...before, about: [...new Set([...(before.about ?? []), ...about])] });
  }
  return [...found.values()];
}

export function childPath(path: string, name: string): string {
  const part = /^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(name) ? name : JSON.stringify(name);
  return path === '' ? part : `${path}.${part}`;
}

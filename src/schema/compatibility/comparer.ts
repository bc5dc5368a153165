import type { JsonSchema } from './json-schema.ts';
import type { Misfit } from './misfit.ts';

/** What the comparison of a part needs to compare the parts within it. */
export interface Comparer {
  readonly reportDropped: boolean;
  compare(reader: JsonSchema, writer: JsonSchema, path: string): Misfit[];
  isSame(reader: JsonSchema, writer: JsonSchema): boolean;
}

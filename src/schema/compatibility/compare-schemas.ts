import { Comparison } from './accepts.ts';
import type { Broken } from './describe-misfit.ts';
import { describeMisfit } from './describe-misfit.ts';
import type { JsonSchema } from './json-schema.ts';
import { isSame } from './json-schema.ts';
import type { MisfitRule } from './misfit.ts';

/**
 * Who must be able to read what. `backward`: consumers with the new schema read events written with the old one, so consumers
 * are upgraded first. `forward`: consumers with the old schema read events written with the new one, so emitters are upgraded
 * first. `full`: both, so that they can be upgraded in any order.
 */
export type CompatibilityMode = 'backward' | 'forward' | 'full';

export const compatibilityModes: readonly CompatibilityMode[] = ['backward', 'forward', 'full'];

/** A change that breaks consumers. */
export interface BreakingChange {
  readonly rule: MisfitRule;
  /** Where in the payload: `items[].price`; empty for the payload itself. */
  readonly path: string;
  readonly breaks: Broken;
  /** What changed, and what it breaks, in one line. */
  readonly message: string;
}

/** The changes between two JSON Schemas that break the promise of a mode. None: the promise holds. */
export function compareSchemas(old: JsonSchema, now: JsonSchema, mode: CompatibilityMode): BreakingChange[] {
  if (isSameSchema(old, now)) return [];
  const changes: BreakingChange[] = [];
  if (mode !== 'forward') changes.push(...breakingChanges(now, old, 'newConsumers'));
  if (mode !== 'backward') changes.push(...breakingChanges(old, now, 'oldConsumers'));
  return changes;
}

export function isSameSchema(old: JsonSchema, now: JsonSchema): boolean {
  try {
    return isSame(old, old, now, now);
  } catch {
    // A reference to nothing, for example. The comparison says where.
    return false;
  }
}

function breakingChanges(reader: JsonSchema, writer: JsonSchema, breaks: Broken): BreakingChange[] {
  const misfits = new Comparison(reader, writer, breaks === 'oldConsumers').misfits();
  return misfits.map((misfit) => ({
    rule: misfit.rule,
    path: misfit.path,
    breaks,
    message: describeMisfit(misfit, breaks),
  }));
}

import type { BreakingChange, CompatibilityMode } from './compatibility/compare-schemas.ts';
import { compareSchemas, isSameSchema } from './compatibility/compare-schemas.ts';
import type { RecordedEvent, SchemaFile } from './schema-file.ts';
import { renderSchemaFile } from './schema-file.ts';

/** A change of the catalogue that breaks consumers. */
export interface CatalogueChange extends Omit<BreakingChange, 'rule' | 'breaks'> {
  readonly type: string;
  readonly rule: BreakingChange['rule'] | 'typeRemoved' | 'versionLowered';
  readonly breaks: BreakingChange['breaks'] | 'all';
}

export interface FileComparison {
  readonly breaking: readonly CatalogueChange[];
  /** Types that are new, or that changed. */
  readonly added: readonly string[];
  readonly changed: readonly string[];
  /** Whether the recorded file has exactly what the catalogue has. */
  readonly upToDate: boolean;
}

/**
 * Compares the catalogue with what was recorded. A raised version, which `defineEvents` takes only with the upcasts from all older
 * ones, allows what would break consumers with the new schema: they read old events through the upcasts. Consumers with the old schema
 * have no such help.
 */
export function compareFiles(recorded: SchemaFile, now: SchemaFile, mode: CompatibilityMode): FileComparison {
  const breaking: CatalogueChange[] = [];
  const added: string[] = [];
  const changed: string[] = [];
  for (const type of Object.keys({ ...recorded.events, ...now.events }).sort()) {
    const before = own(recorded, type);
    const after = own(now, type);
    if (before === undefined) added.push(type);
    else if (after === undefined) {
      breaking.push({ type, rule: 'typeRemoved', path: '', breaks: 'all', message: removed });
    } else {
      const isChanged = before.version !== after.version || !isSameSchema(before.schema, after.schema);
      if (isChanged) changed.push(type);
      breaking.push(...changesOf(type, before, after, mode));
    }
  }
  const upToDate = renderSchemaFile(recorded) === renderSchemaFile(now);
  return { breaking, added, changed, upToDate };
}

const removed = 'event type removed: consumers get no more of its events, and stored ones have no schema';

function own({ events }: SchemaFile, type: string): RecordedEvent | undefined {
  return Object.hasOwn(events, type) ? events[type] : undefined;
}

function changesOf(
  type: string,
  before: RecordedEvent,
  after: RecordedEvent,
  mode: CompatibilityMode,
): CatalogueChange[] {
  if (after.version < before.version) {
    const message = `version lowered from ${before.version} to ${after.version}: consumers cannot tell events of the two apart`;
    return [{ type, rule: 'versionLowered', path: '', breaks: 'all', message }];
  }
  const isRaised = after.version > before.version;
  return compareSchemas(before.schema, after.schema, mode)
    .filter(({ breaks }) => !(isRaised && breaks === 'newConsumers'))
    .map((change) => ({ type, ...change }));
}

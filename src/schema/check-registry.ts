import type { SchemaRegistry } from './registry.ts';
import type { RecordedEvent, SchemaFile } from './schema-file.ts';
import { subjectName } from './subject-name.ts';

/** What a registry says about the schemas of a catalogue. */
export interface RegistryComparison {
  readonly url: string;
  /** Types whose schema the registry would refuse as the next version. */
  readonly refused: readonly { readonly type: string; readonly messages: readonly string[] }[];
  /** Types whose schema the registry would take and does not have. */
  readonly missing: readonly string[];
  /** Types whose schema was registered now. */
  readonly registered: readonly string[];
}

/**
 * Asks the registry about every schema. `subject` is the pattern of their subjects. With `register` it then adds those that it lacks, and
 * none if it refuses one.
 */
export async function checkRegistry(
  registry: SchemaRegistry,
  { events }: SchemaFile,
  { register, subject }: { register: boolean; subject: string },
): Promise<RegistryComparison> {
  const refused: { type: string; messages: readonly string[] }[] = [];
  const missing: string[] = [];
  const schemaOf = (type: string) => (events[type] as RecordedEvent).schema;
  for (const type of Object.keys(events).sort()) {
    if ((await registry.lookUp(subjectName(subject, { type }), schemaOf(type))) !== undefined) continue;
    const { isCompatible, messages } = await registry.check(subjectName(subject, { type }), schemaOf(type));
    if (isCompatible) missing.push(type);
    else refused.push({ type, messages });
  }
  const url = registry.address;
  if (!register || refused.length > 0) return { url, refused, missing, registered: [] };
  for (const type of missing) await registry.register(subjectName(subject, { type }), schemaOf(type));
  return { url, refused, missing: [], registered: missing };
}

import { limitMisfits } from './accepts-values.ts';
import type { Comparer } from './comparer.ts';
import type { JsonSchema, SchemaObject } from './json-schema.ts';
import { asSchema, isObject, matches } from './json-schema.ts';
import type { Misfit } from './misfit.ts';
import { childPath } from './misfit.ts';

/** Why a reader of objects does not accept those of a writer. Both have no references or unions at their top. */
export function objectMisfits(
  comparison: Comparer,
  reader: SchemaObject,
  writer: SchemaObject,
  path: string,
): Misfit[] {
  const written = writtenFields(writer);
  const fields = Object.entries(written.fields).filter(([, schema]) => schema !== false);
  return [
    ...requiredMisfits(reader, writer, written, path),
    ...fields.flatMap(([name, schema]) => fieldMisfits(comparison, reader, name, schema, path)),
    ...otherFieldMisfits(comparison, reader, writer, written, path),
    ...droppedMisfits(comparison, reader, written, path),
    ...limitMisfits(
      reader,
      {
        minProperties: Math.max(Number(writer.minProperties ?? 0), requiredOf(writer).length),
        maxProperties: writer.maxProperties ?? (written.others === false ? fields.length : undefined),
      },
      path,
      ['minProperties', 'maxProperties'],
    ),
  ];
}

interface WrittenFields {
  /** The fields that the writer names. */
  readonly fields: Readonly<Record<string, JsonSchema>>;
  /** What it may write into fields that it does not name; `false` if it writes no others. */
  readonly others: JsonSchema;
}

function writtenFields(writer: SchemaObject): WrittenFields {
  const { properties, additionalProperties, patternProperties, propertyNames } = writer;
  const declared = isObject(properties) ? mapValues(properties) : {};
  // Required without a schema of its own: it is written, and may be anything that other fields may be.
  const always = requiredOf(writer).map((name) => [name, asSchema(additionalProperties ?? true)] as const);
  const named = { ...Object.fromEntries(patternProperties === undefined ? always : []), ...declared };
  const parts = isObject(patternProperties) ? Object.values(patternProperties).map(asSchema) : [];
  // Left out, it means that readers may ignore other fields, not that this writer writes them.
  const others = additionalProperties === undefined ? false : asSchema(additionalProperties);
  const keys = isObject(propertyNames) ? propertyNames.enum : undefined;
  if (Array.isArray(keys) && parts.length === 0 && others !== false) {
    return { fields: { ...Object.fromEntries(keys.map((key) => [String(key), others])), ...named }, others: false };
  }
  if (parts.length === 0) return { fields: named, others };
  return { fields: named, others: { anyOf: others === false ? parts : [others, ...parts] } };
}

function mapValues(properties: SchemaObject): Record<string, JsonSchema> {
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, asSchema(schema)]));
}

function requiredOf(schema: SchemaObject): readonly string[] {
  return Array.isArray(schema.required) ? schema.required : [];
}

function propertiesOf(schema: SchemaObject): SchemaObject {
  return isObject(schema.properties) ? schema.properties : {};
}

function requiredMisfits(reader: SchemaObject, writer: SchemaObject, written: WrittenFields, path: string): Misfit[] {
  const always = new Set(requiredOf(writer));
  return requiredOf(reader)
    .filter((name) => !always.has(name) || written.fields[name] === false)
    .map((name) => {
      const isDeclared = Object.hasOwn(written.fields, name) && written.fields[name] !== false;
      return {
        rule: isDeclared ? 'optional' : 'missing',
        path: childPath(path, name),
        ...renamed(reader, name, written),
      };
    });
}

/** Fields that the writer has and the reader has not: one of them may be the new name. */
function renamed(reader: SchemaObject, name: string, { fields }: WrittenFields): { about?: readonly string[] } {
  if (Object.hasOwn(fields, name)) return {};
  const own = propertiesOf(reader);
  const added = Object.keys(fields).filter((each) => !Object.hasOwn(own, each));
  const schema = JSON.stringify(own[name]);
  const alike = added.filter((each) => JSON.stringify(fields[each]) === schema);
  return alike.length === 1 ? { about: alike } : {};
}

function fieldMisfits(
  comparison: Comparer,
  reader: SchemaObject,
  name: string,
  written: JsonSchema,
  path: string,
): Misfit[] {
  const at = childPath(path, name);
  const { properties, patternProperties, additionalProperties, propertyNames } = reader;
  const schemas: JsonSchema[] = [];
  if (isObject(properties) && Object.hasOwn(properties, name)) schemas.push(asSchema(properties[name]));
  for (const [pattern, schema] of Object.entries(isObject(patternProperties) ? patternProperties : {})) {
    if (matches(pattern, name)) schemas.push(asSchema(schema));
  }
  if (schemas.length === 0) {
    if (additionalProperties === false) return [{ rule: 'unexpected', path: at }];
    schemas.push(asSchema(additionalProperties ?? true));
  }
  const misfits = schemas.flatMap((schema) => comparison.compare(schema, written, at));
  const hasName =
    propertyNames === undefined || comparison.compare(asSchema(propertyNames), { const: name }, at).length === 0;
  return hasName ? misfits : [{ rule: 'unexpected', path: at }];
}

function otherFieldMisfits(
  comparison: Comparer,
  reader: SchemaObject,
  writer: SchemaObject,
  { fields, others }: WrittenFields,
  path: string,
): Misfit[] {
  const at = path === '' ? '*' : `${path}.*`;
  let left = others;
  if (reader.patternProperties !== undefined) {
    if (left === false) return [];
    const patterns = (schema: SchemaObject) => ({ patternProperties: schema.patternProperties });
    if (!comparison.isSame(patterns(reader), patterns(writer)))
      return [{ rule: 'keyword', path, about: ['patternProperties'] }];
    left = asSchema(writer.additionalProperties ?? false);
  }
  if (left === false) return [];
  const misfits: Misfit[] = [];
  if (reader.additionalProperties === false) misfits.push({ rule: 'others', path });
  else misfits.push(...comparison.compare(asSchema(reader.additionalProperties ?? true), left, at));
  for (const [name, schema] of Object.entries(propertiesOf(reader))) {
    if (!Object.hasOwn(fields, name))
      misfits.push(...comparison.compare(asSchema(schema), others, childPath(path, name)));
  }
  if (reader.propertyNames !== undefined) {
    const names = { allOf: [{ type: 'string' }, asSchema(writer.propertyNames ?? true)] };
    misfits.push(...comparison.compare(asSchema(reader.propertyNames), names, `${at} (name)`));
  }
  return misfits;
}

function droppedMisfits(comparison: Comparer, reader: SchemaObject, written: WrittenFields, path: string): Misfit[] {
  if (!comparison.reportDropped || written.others !== false) return [];
  const required = new Set(requiredOf(reader));
  return Object.entries(propertiesOf(reader))
    .filter(([name, schema]) => schema !== false && !required.has(name) && !Object.hasOwn(written.fields, name))
    .map(([name]) => ({ rule: 'dropped', path: childPath(path, name), ...renamed(reader, name, written) }));
}

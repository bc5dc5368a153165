import { objectMisfits } from './accepts-object.ts';
import { arrayMisfits, numberMisfits, stringMisfits } from './accepts-values.ts';
import { alternatives, areDisjoint, isOfTypes, jsonTypes, typeOf } from './alternatives.ts';
import type { Comparer } from './comparer.ts';
import { valuesOf } from './intersection.ts';
import type { JsonSchema, SchemaObject } from './json-schema.ts';
import {
  asSchema,
  assertions,
  deepEqual,
  dereference,
  isObject,
  isSame,
  NotComparable,
  opaqueKeywords,
  target,
} from './json-schema.ts';
import type { Misfit } from './misfit.ts';
import { combined, weightOf } from './misfit.ts';

/** Deeper schemas are not compared. */
const depthMax = 60;
/** Pairs of schemas at most: definitions that refer to each other can multiply. */
const pairsMax = 20_000;

/**
 * Whether a reader with one schema accepts all that a writer with another may write. A writer writes only the fields and items
 * that its schema declares, though a reader may ignore others. An empty list of misfits is a promise; a misfit may be
 * one too many, where the schemas use what cannot be compared exactly.
 */
export class Comparison implements Comparer {
  readonly reader: JsonSchema;
  readonly writer: JsonSchema;
  /** Whether a field that the writer no longer has is a misfit, though the reader can do without it. */
  readonly reportDropped: boolean;
  readonly #underWay = new Map<SchemaObject, Set<SchemaObject>>();
  #depth = 0;
  #pairs = 0;

  constructor(reader: JsonSchema, writer: JsonSchema, reportDropped: boolean) {
    this.reader = reader;
    this.writer = writer;
    this.reportDropped = reportDropped;
  }

  misfits(): Misfit[] {
    return this.compare(this.reader, this.writer, '');
  }

  compare(reader: JsonSchema, writer: JsonSchema, path: string): Misfit[] {
    try {
      const [read, written] = [dereference(reader, this.reader), dereference(writer, this.writer)];
      if (!isObject(read) || !isObject(written)) return this.#compare(read, written, path);
      const partners = this.#underWay.get(read) ?? new Set();
      // Met again within itself: a difference is found in the comparison in progress.
      if (partners.has(written)) return [];
      this.#underWay.set(read, partners.add(written));
      try {
        return this.#compare(read, written, path);
      } finally {
        partners.delete(written);
      }
    } catch (error) {
      if (!(error instanceof NotComparable)) throw error;
      return [{ rule: 'unknown', path, about: [error.message] }];
    }
  }

  isSame(reader: JsonSchema, writer: JsonSchema): boolean {
    return isSame(reader, this.reader, writer, this.writer);
  }

  #compare(reader: JsonSchema, writer: JsonSchema, path: string): Misfit[] {
    if (this.isSame(reader, writer)) return [];
    if (this.#depth >= depthMax || ++this.#pairs > pairsMax) throw new NotComparable('it is too large');
    this.#depth++;
    try {
      const written = alternatives(writer, this.writer);
      return combined(written.flatMap((each) => this.#accepts(reader, each, path)));
    } finally {
      this.#depth--;
    }
  }

  /** Why the reader does not accept one alternative of the writer. */
  #accepts(reader: JsonSchema, written: SchemaObject, path: string): Misfit[] {
    if (reader === true) return [];
    if (reader === false) return [{ rule: 'type', path, about: [describe(written)], reader: 'nothing' }];
    const misfits: Misfit[] = [];
    const own: Record<string, unknown> = {};
    for (const [keyword, value] of assertions(reader)) {
      if (keyword === '$ref') misfits.push(...this.#accepts(target(String(value), this.reader), written, path));
      else if (keyword === 'allOf') {
        for (const part of value as unknown[]) misfits.push(...this.#accepts(asSchema(part), written, path));
      } else if (keyword === 'anyOf') misfits.push(...this.#anyAccepts(value as unknown[], written, path));
      else if (keyword === 'oneOf') misfits.push(...this.#oneAccepts(value as unknown[], written, path));
      else own[keyword] = value;
    }
    return [...misfits, ...this.#ownMisfits(own, written, path)];
  }

  #anyAccepts(parts: readonly unknown[], written: SchemaObject, path: string): Misfit[] {
    let best: Misfit[] | undefined;
    for (const part of parts) {
      const misfits = this.#accepts(dereference(asSchema(part), this.reader), written, path);
      if (misfits.length === 0) return misfits;
      if (best === undefined || weightOf(misfits) < weightOf(best)) best = misfits;
    }
    if (best === undefined) return [{ rule: 'type', path, about: [describe(written)], reader: 'nothing' }];
    const ofType = best.filter(({ rule, path: at }) => rule === 'type' && at === path);
    if (ofType.length > 0) {
      const types = parts.flatMap((part) => acceptedTypes(asSchema(part), this.reader));
      return [{ rule: 'type', path, about: [describe(written)], reader: [...new Set(types)].join(', ') }];
    }
    // Another value of the field that tells the alternatives apart: what else differs says nothing.
    const values = best.filter(({ rule }) => rule === 'value');
    return values.length > 0 ? values : best;
  }

  #oneAccepts(parts: readonly unknown[], written: SchemaObject, path: string): Misfit[] {
    const schemas = parts.map(asSchema);
    const accepting = schemas.findIndex((part) => this.#accepts(part, written, path).length === 0);
    if (accepting < 0) return this.#anyAccepts(parts, written, path);
    const others = schemas.filter((_, index) => index !== accepting);
    if (others.every((part) => areDisjoint(part, this.reader, written, this.writer))) return [];
    return [{ rule: 'unknown', path, about: ['a value may match several alternatives of oneOf'] }];
  }

  #ownMisfits(reader: SchemaObject, written: SchemaObject, path: string): Misfit[] {
    const type = 'const' in written ? typeOf(written.const) : String(written.type);
    const types: readonly string[] = reader.type === undefined ? jsonTypes : ([reader.type].flat() as string[]);
    const isAccepted =
      'const' in written
        ? isOfTypes(written.const, types)
        : types.includes(type) || (type === 'integer' && types.includes('number'));
    if (!isAccepted) return [{ rule: 'type', path, about: [describe(written)], reader: types.join(', ') }];
    const misfits = [...listMisfits(reader, written, path), ...this.#opaqueMisfits(reader, written, type, path)];
    if (type === 'object') misfits.push(...objectMisfits(this, reader, written, path));
    else if (type === 'array') misfits.push(...arrayMisfits(this, reader, written, path));
    else if (type === 'string') misfits.push(...stringMisfits(reader, written, path));
    else if (type === 'number' || type === 'integer') misfits.push(...numberMisfits(reader, written, path));
    return misfits;
  }

  #opaqueMisfits(reader: SchemaObject, written: SchemaObject, type: string, path: string): Misfit[] {
    const misfits: Misfit[] = [];
    for (const [keyword, value] of Object.entries(reader)) {
      const of = Object.hasOwn(opaqueKeywords, keyword) ? opaqueKeywords[keyword] : undefined;
      if (of === undefined || (of !== 'any' && of !== type)) continue;
      // What is left unevaluated depends on all other keywords.
      const isSame =
        !keyword.startsWith('unevaluated') && this.isSame({ [keyword]: value }, { [keyword]: written[keyword] });
      if (!isSame || written[keyword] === undefined) misfits.push({ rule: 'keyword', path, about: [keyword] });
    }
    return misfits;
  }
}

function listMisfits(reader: SchemaObject, written: SchemaObject, path: string): Misfit[] {
  const listed = valuesOf(reader);
  if (listed === undefined) return [];
  if (!('const' in written)) return [{ rule: 'listed', path, about: listed.map((value) => JSON.stringify(value)) }];
  if (listed.some((value) => deepEqual(value, written.const))) return [];
  return [{ rule: 'value', path, about: [JSON.stringify(written.const)] }];
}

/** The type of an alternative, or its value where only the value is unusual. */
function describe(written: SchemaObject): string {
  return 'const' in written ? typeOf(written.const) : String(written.type);
}

function acceptedTypes(schema: JsonSchema, root: JsonSchema): string[] {
  return alternatives(schema, root).map(describe);
}

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { defineEvents } from '../../src/catalogue/catalogue.ts';
import { extractSchemas } from '../../src/schema/extract-schemas.ts';
import { renderTypes } from '../../src/schema/typescript-types.ts';
import { pairs } from './pairs.ts';

const compiler = fileURLToPath(new URL('../../node_modules/typescript/bin/tsc', import.meta.url));

/** The errors of the compiler, a line each. */
function compile(files: Record<string, string>): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'postcommit-types-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const flags = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--allowImportingTsExtensions'];
  try {
    const args = [...flags, '--module', 'nodenext', '--target', 'es2022', '--types', '', ...Object.keys(files)];
    execFileSync(process.execPath, [compiler, ...args], { cwd: folder, encoding: 'utf8' });
    return [];
  } catch (error) {
    return (error as { stdout: string }).stdout.split('\n').filter((line) => line.includes('error TS'));
  }
}

const category = z.object({
  name: z.string(),
  get parts() {
    return z.array(category);
  },
});
const events = defineEvents({
  'order.created': {
    version: 2,
    upcast: { 1: (v1: unknown) => v1 as never },
    description: 'A customer */ ordered.',
    schema: z.object({
      id: z.string().describe('The number */ of the order'),
      total: z.number().int(),
      note: z.string().nullable().optional(),
      lines: z.array(z.object({ 'unit-price': z.number() })),
      labels: z.record(z.string(), z.boolean()),
      place: z.tuple([z.number(), z.number()]),
      payment: z.discriminatedUnion('kind', [
        z.object({ kind: z.literal('card'), number: z.string() }),
        z.object({ kind: z.literal('cash') }),
      ]),
      status: z.enum(['new', 'paid']),
    }),
  },
  'order-created': { schema: category },
  array: { jsonSchema: { type: 'array', items: { type: 'string' } } },
  '1': {},
  tree: { jsonSchema: { type: 'object', additionalProperties: { $ref: '#' } } },
});

it('prints types that compile and say what the schemas say', () => {
  const types = renderTypes(extractSchemas(events));
  const good = `
    import type { Array2, Event1, EventPayloads, OrderCreated as Category, OrderCreated2 as OrderCreated, Tree } from './events.ts';
    export const order: EventPayloads['order.created'] = { id: 'a', total: 1, lines: [{ 'unit-price': 2 }],
      labels: { gift: true }, place: [1, 2], payment: { kind: 'cash' }, status: 'new' };
    export const parts: EventPayloads['order-created'] = { name: 'a', parts: [{ name: 'b', parts: [] }] };
    export const list: Array2 = ['a'];
    export const anything: Event1 = 5;
    export const note: OrderCreated['note'] = null;
    export const tree: Tree = { a: { b: {} } };
    export const both: [OrderCreated, Category][] = [];
    export const payment = (order: OrderCreated) => order.payment.kind === 'card' ? order.payment.number : undefined;`;
  const line = (code: string) => `${code}\n`;
  const bad = [
    `import type { EventPayloads, OrderCreated2 as OrderCreated } from './events.ts'; declare const order: OrderCreated;`,
    `export const missing: OrderCreated = { id: 'a' };`,
    `export const status: OrderCreated['status'] = 'lost';`,
    `export const text: OrderCreated['total'] = '1';`,
    `export const optional: string = order.note;`,
    `export const label: OrderCreated['labels'] = { gift: 'yes' };`,
    `export const long: OrderCreated['place'] = [1, 2, 3];`,
    `export const short: OrderCreated['place'] = [1];`,
    `export const none: EventPayloads['order.lost'] = 1;`,
  ];
  expect(compile({ 'events.ts': types, 'good.ts': good })).toEqual([]);
  const errors = compile({ 'events.ts': types, 'bad.ts': bad.map(line).join('') });
  const lines = errors.map((error) => Number(/^bad\.ts\((\d+),/.exec(error)?.[1]));
  expect(lines, errors.join('\n')).toEqual([2, 3, 4, 5, 6, 7, 8, 9]);
});

it('prints types that compile for every schema that the comparison knows', () => {
  const schemas = pairs.flatMap(({ before, after }, at) => [
    [`before ${at}`, { version: 1, schema: before }] as const,
    [`after ${at}`, { version: 1, schema: after }] as const,
  ]);
  expect(compile({ 'events.ts': renderTypes({ events: Object.fromEntries(schemas) }) })).toEqual([]);
});

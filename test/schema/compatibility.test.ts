import { describe, expect, it } from 'vitest';
import type { CompatibilityMode } from '../../src/schema/compatibility/compare-schemas.ts';
import { compareSchemas } from '../../src/schema/compatibility/compare-schemas.ts';
import { pairs } from './pairs.ts';

describe.each(pairs)('$name', ({ before, after, backward, forward, says }) => {
  const lines = (mode: CompatibilityMode) =>
    compareSchemas(before, after, mode).map(({ path, message }) => (path ? `${path}: ${message}` : message));

  it('has the right verdict in each mode', () => {
    const verdict = (mode: CompatibilityMode) => lines(mode).length === 0;
    expect(
      { backward: verdict('backward'), forward: verdict('forward'), full: verdict('full') },
      lines('full').join('\n'),
    ).toEqual({
      backward,
      forward,
      full: backward && forward,
    });
  });

  it('explains it', () => {
    if (says === undefined) expect(lines('full')).toEqual([]);
    else expect(lines('full').join('\n')).toContain(says);
  });
});

describe('schemas that cannot be compared', () => {
  const broken = (before: object, after: object) =>
    compareSchemas({ ...before }, { ...after }, 'full').map(({ message }) => message);

  it('are incompatible, with the reason', () => {
    expect(broken({ $ref: 'https://example.com/order.json' }, { type: 'object' }).join()).toContain(
      'cannot be compared: the reference https://example.com/order.json does not point into the schema itself',
    );
    expect(broken({ $ref: '#/$defs/none' }, { type: 'object' }).join()).toContain('points to nothing');
    expect(broken({ $ref: '#' }, { type: 'object' }).join()).toContain('cannot be compared');
    expect(broken({ type: 'string' }, { not: { const: 'a' } }).join()).toContain('not added or changed');
  });

  it('are compatible with themselves', () => {
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    const odd = { if: { type: 'string' }, then: { minLength: 2 }, not: { const: 'abc' }, unevaluatedProperties: false };
    expect(broken(odd, odd)).toEqual([]);
    expect(broken({ $ref: '#/$defs/none' }, { $ref: '#/$defs/none' })).not.toEqual([]);
  });

  it('end the comparison when definitions multiply', () => {
    const defs = (leaf: object) =>
      Object.fromEntries([
        ...Array.from({ length: 40 }, (_, at) => [
          `d${at}`,
          { type: 'object', properties: { a: { $ref: `#/$defs/d${at + 1}` }, b: { $ref: `#/$defs/d${at + 1}` } } },
        ]),
        ['d40', leaf],
      ]);
    const [before, after] = [{ type: 'string' }, { type: ['string', 'null'] }].map((leaf) => ({
      $ref: '#/$defs/d0',
      $defs: defs(leaf),
    }));
    expect(compareSchemas(before as object as never, after as object as never, 'backward').length).toBeGreaterThan(0);
  });
});

import { expect, test } from 'vitest';
import { indentJson } from '../../src/cli/json-text.ts';

const value = { n: 1.5, list: [1, { deep: -2 }, {}, [], [[]]], text: 'a\\"b:{,', '\\': null, '': true };
const layout = JSON.stringify(value, undefined, 2);

test('JSON text is laid out as JSON.stringify does it', () => {
  expect(indentJson(JSON.stringify(value), 10_000)).toBe(layout);
});

test('as far as the limit, wherever that is, and not much further', () => {
  const text = JSON.stringify(value);
  for (let max = 0; max <= layout.length; max++) {
    const start = indentJson(text, max);
    expect(start.slice(0, max)).toBe(layout.slice(0, max));
    expect(start.length).toBeLessThan(max + 50);
  }
});

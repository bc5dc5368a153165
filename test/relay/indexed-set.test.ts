import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Indexed, IndexedSet } from '../../src/relay/event/indexed-set.ts';

test('an IndexedSet holds what a Set would', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('add', 'delete', 'clear'), fc.nat(9)), { maxLength: 60 });
  fc.assert(
    fc.property(steps, (todo) => {
      const things: Indexed[] = Array.from({ length: 10 }, () => ({ indexInSet: -1 }));
      const indexed = new IndexedSet<Indexed>();
      const set = new Set<Indexed>();
      for (const [what, which] of todo) {
        const thing = things[which] as Indexed;
        if (what === 'clear') {
          indexed.clear();
          set.clear();
        } else if (what === 'delete') {
          indexed.delete(thing);
          set.delete(thing);
        } else if (!set.has(thing)) {
          indexed.add(thing);
          set.add(thing);
        }
        expect(new Set(indexed.items())).toEqual(set);
        expect(indexed.items()).toHaveLength(set.size);
        expect(indexed.size).toBe(set.size);
      }
    }),
  );
});

test('items can be deleted while iterating over items()', () => {
  const indexed = new IndexedSet<Indexed>();
  for (let i = 0; i < 5; i++) indexed.add({ indexInSet: -1 });
  let seen = 0;
  for (const item of indexed.items()) {
    indexed.delete(item);
    seen++;
  }
  expect(seen).toBe(5);
  expect(indexed.size).toBe(0);
});

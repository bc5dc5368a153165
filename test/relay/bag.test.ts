import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Bag, type Bagged } from '../../src/relay/dispatch/indexed-set.ts';

test('a bag holds what a Set would', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('add', 'delete', 'clear'), fc.nat(9)), { maxLength: 60 });
  fc.assert(
    fc.property(steps, (todo) => {
      const things: Bagged[] = Array.from({ length: 10 }, () => ({ place: -1 }));
      const bag = new Bag<Bagged>();
      const set = new Set<Bagged>();
      for (const [what, which] of todo) {
        const thing = things[which] as Bagged;
        if (what === 'clear') {
          bag.clear();
          set.clear();
        } else if (what === 'delete') {
          bag.delete(thing);
          set.delete(thing);
        } else if (!set.has(thing)) {
          bag.add(thing);
          set.add(thing);
        }
        expect(new Set(bag.items())).toEqual(set);
        expect(bag.items()).toHaveLength(set.size);
        expect(bag.size).toBe(set.size);
      }
    }),
  );
});

test('its items can be gone through while they leave', () => {
  const bag = new Bag<Bagged>();
  for (let i = 0; i < 5; i++) bag.add({ place: -1 });
  let seen = 0;
  for (const item of bag.items()) {
    bag.delete(item);
    seen++;
  }
  expect(seen).toBe(5);
  expect(bag.size).toBe(0);
});

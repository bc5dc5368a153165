import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Fifo } from '../../src/relay/dispatch/fifo.ts';

describe('Fifo', () => {
  test('gives back what it was given, in that order', () => {
    const steps = fc.array(fc.constantFrom('push', 'push many', 'shift', 'shift many', 'remove odd', 'drain', 'clear'));
    fc.assert(
      fc.property(steps, (todo) => {
        const fifo = new Fifo<number>();
        let expected: number[] = [];
        let next = 0;
        for (const step of todo) {
          const times = step.endsWith('many') ? 1_500 : 1;
          for (let i = 0; i < times && step.startsWith('push'); i++) {
            fifo.push(next);
            expected.push(next++);
          }
          for (let i = 0; i < times && step.startsWith('shift'); i++) expect(fifo.shift()).toBe(expected.shift());
          if (step === 'remove odd') {
            fifo.remove((n) => n % 2 === 1);
            expected = expected.filter((n) => n % 2 === 0);
          }
          if (step === 'drain') expect(fifo.drain()).toEqual(expected);
          if (step === 'clear') fifo.clear();
          if (step === 'drain' || step === 'clear') expected = [];
          expect(fifo.items()).toEqual(expected);
        }
      }),
      { numRuns: 50 },
    );
  });

  test('keeps nothing of what has left it', async () => {
    setFlagsFromString('--expose-gc');
    const collectGarbage = runInNewContext('gc') as () => void;
    const fifo = new Fifo<object>();
    const refs: WeakRef<object>[] = [];
    for (let i = 0; i < 10; i++) {
      const event = { payload: 'x'.repeat(1_000) };
      refs.push(new WeakRef(event));
      fifo.push(event);
    }
    for (let i = 0; i < 7; i++) fifo.shift();
    await turn(); // What a WeakRef was made of lives until the end of its turn.
    collectGarbage();
    expect(refs.map((ref) => ref.deref() !== undefined)).toEqual(refs.map((_, index) => index >= 7));
    expect(fifo.items()).toHaveLength(3);
  });
});

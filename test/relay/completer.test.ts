import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Held } from '../../src/relay/dispatch/dispatcher.ts';
import { Completer, type Entry } from '../../src/relay/settle/completer.ts';

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const entry = (seq: string): Entry => ({ held: { seq } as Held, settlement: { seq, targets: ['handler'] } });

// When a statement is answered the completer ends its work, and that takes a few microtasks. Whatever is added in one of them
// must not wait for the next event, which may come tomorrow.
test.each(Array.from({ length: 12 }, (_, depth) => depth))(
  'a result added %d microtasks after the last was written is written too',
  async (depth) => {
    const written: string[] = [];
    const completer: Completer = new Completer({
      schema: 'postcommit',
      query: async () => ({ rows: [[[]]] }),
      flushSizeMax: 10,
      poison: 'skip',
      logger: silent,
      onWritten: ({ held }) => {
        written.push(held.seq);
        if (held.seq === '1') void addAfter(depth);
      },
    });
    async function addAfter(microtasks: number): Promise<void> {
      for (let i = 0; i < microtasks; i++) await undefined;
      completer.add(entry('2'));
    }
    completer.begin('7');
    completer.add(entry('1'));
    await completer.drained();
    await turn();
    await completer.drained();
    expect(written).toEqual(['1', '2']);
    expect(completer.pending).toBe(0);
  },
);

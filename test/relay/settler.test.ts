import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { ClaimedEvent } from '../../src/relay/event/claimed-event.ts';
import { Settler } from '../../src/relay/settle/settler.ts';

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const event = (seq: string) => ({ seq }) as ClaimedEvent;
const outcome = { kind: 'delivered', targets: ['handler'] } as const;

// When a statement is answered the settler ends its work, and that takes a few microtasks. Whatever is added in one of them
// must not wait for the next event, which may come tomorrow.
test.each(Array.from({ length: 12 }, (_, depth) => depth))(
  'a result added %d microtasks after the last was written is written too',
  async (depth) => {
    const written: string[] = [];
    const settler: Settler = new Settler({
      schema: 'postcommit',
      query: async () => ({ rows: [[[]]] }),
      retry: { delaysMs: [] },
      poison: 'skip',
      logger: silent,
      onSettled: ({ event }) => {
        written.push(event.seq);
        if (event.seq === '1') void addAfter(depth);
      },
    });
    async function addAfter(microtasks: number): Promise<void> {
      for (let i = 0; i < microtasks; i++) await undefined;
      settler.settle(event('2'), outcome);
    }
    settler.useToken('7');
    settler.settle(event('1'), outcome);
    await settler.drained();
    await turn();
    await settler.drained();
    expect(written).toEqual(['1', '2']);
    expect(settler.pending).toBe(0);
  },
);

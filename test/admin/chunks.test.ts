import { expect, test } from 'vitest';
import { runInChunks, seqsOf } from '../../src/admin/chunks.ts';

const nowhere = { query: () => Promise.reject(new Error('there is no database')) };

test('named events are taken from the lowest seq to the highest, a thousand at a time and each once', async () => {
  const numbers = Array.from({ length: 1_500 }, (_, i) => 9_007_199_254_741_500n - BigInt(i) * 7n);
  const references = [...numbers, 9n, 10n, 100n, 9n].map((seq) => ({ seq: String(seq) }));
  const { lists } = await seqsOf(nowhere, 'postcommit', references);
  expect(lists.map((list) => list.length)).toEqual([1_000, 503]);
  const ascending = [9n, 10n, 100n, ...numbers.reverse()].map(String);
  expect(lists.flat()).toEqual(ascending);
});

test('a bulk operation continues from where the last chunk ended, until one is not full', async () => {
  const chunks: string[] = [];
  const seen = [1_000, 1_000, 3];
  const result = await runInChunks(['all'], async (_selection, { after, limit }) => {
    chunks.push(after);
    expect(limit).toBe(1_000);
    const n = seen.shift() ?? 0;
    return { seen: n, count: n - 1, reached: String(Number(after) + n) };
  });
  expect(result).toEqual({ count: 2_000 });
  expect(chunks).toEqual(['0', '1000', '2000']);
});

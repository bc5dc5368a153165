import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { metricDefinitions } from '../../src/metrics/definitions.ts';

test('docs/metrics.md lists every metric as it is', async () => {
  const page = await readFile(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
  const listed = page.split('\n').filter((line) => line.startsWith('| `outbox_'));
  const expected = Object.entries(metricDefinitions).map(
    ([name, { type, labels, help }]) =>
      `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${help} |`,
  );
  expect(listed.sort()).toEqual(expected.sort());
});

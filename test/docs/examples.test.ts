import { expect, it } from 'vitest';
import { compileExamples, listExamples, needsDatabaseClients } from './compile-examples.ts';

it('examples in the docs and on public symbols compile as they stand', async () => {
  const examples = (await listExamples()).filter((example) => !needsDatabaseClients(example));
  expect(examples.length).toBeGreaterThan(10);
  expect(await compileExamples(examples, '.')).toBe('');
});

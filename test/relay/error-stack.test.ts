import { expect, test } from 'vitest';
import { PostcommitError } from '../../src/errors.ts';
import { failedEvent } from '../../src/relay/event/outcome.ts';

const stackOfFailure = (thrown: unknown) => {
  const outcome = failedEvent([], thrown);
  return outcome.kind === 'failed' ? outcome.errors[0]?.stack : undefined;
};

test('the stack of what a handler threw is limited, and a long message does not push its frames out', () => {
  // How long a stack is depends on where the project is.
  const error = Object.assign(new TypeError('cannot read email'), {
    stack: 'TypeError: cannot read email\n    at a.ts:1:1',
  });
  expect(stackOfFailure(error)).toBe(error.stack);
  const long = stackOfFailure(new Error('x'.repeat(1_000_000))) ?? '';
  expect(long).toMatch(/^Error: x+\.\.\.\n {4}at .*error-stack\.test/);
  expect(long.length).toBeLessThan(2_010);
});

test('a thrown value that is not an error has no stack, nor does an error of this package, such as the outcome of a publisher', () => {
  expect(stackOfFailure('a text')).toBeUndefined();
  expect(stackOfFailure(new PostcommitError('POSTCOMMIT_E_PUBLISH_FAILED', 'no answer'))).toBeUndefined();
  expect(stackOfFailure(Object.assign(new Error('odd'), { stack: 5 }))).toBeUndefined();
  const hostile = Object.defineProperty(new Error('hostile'), 'stack', {
    get: () => {
      throw new Error('no stack for you');
    },
  });
  expect(stackOfFailure(hostile)).toBeUndefined();
});

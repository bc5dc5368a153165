import { expect, test } from 'vitest';
import { endChild, startChild } from './child.ts';
import { seededRandom } from './random.ts';
import { deferred, until, within } from './wait.ts';

test('until() returns what the condition answered, and names what never came', async () => {
  let asked = 0;
  const answer = await until(() => (++asked === 3 ? 'third' : undefined), { what: 'asked three times' });
  expect(answer).toBe('third');
  await expect(until(() => false, { timeoutMs: 20, what: 'pigs fly' })).rejects.toThrow(
    'waited 20 ms in vain until pigs fly (last answer false)',
  );
  const failing = () => {
    throw new Error('no wings');
  };
  await expect(until(failing, { timeoutMs: 20, what: 'pigs fly' })).rejects.toThrow('(no wings)');
});

test('deferred() settles from outside, within() limits the wait', async () => {
  const signal = deferred<number>();
  expect(signal.settled).toBe(false);
  await expect(within(signal.promise, { timeoutMs: 20, what: 'it is there' })).rejects.toThrow('until it is there');
  signal.resolve(5);
  expect(await within(signal.promise, { what: 'it is there' })).toBe(5);
  expect(signal.settled).toBe(true);
});

test('the same seed makes the same choices', () => {
  const choices = (seed: number) => {
    const random = seededRandom(seed);
    return [random.integer(1, 6), random.pick(['a', 'b', 'c']), random.shuffle([1, 2, 3, 4]), random.chance(0.5)];
  };
  expect(choices(42)).toEqual(choices(42));
  const random = seededRandom(7);
  const rolls = Array.from({ length: 6_000 }, () => random.integer(1, 6));
  for (let face = 1; face <= 6; face++) {
    expect(rolls.filter((roll) => roll === face).length).toBeGreaterThan(850);
  }
});

test('a child sends messages, ends by a signal, and shows its stderr when it fails', async () => {
  const child = startChild('test/support/echo.child.ts', ['one', 'two'], { ECHO_SUFFIX: '!' });
  try {
    expect(await child.next(({ text }) => text === 'two!')).toEqual({ text: 'two!' });
    expect(await child.next()).toEqual({ text: 'one!' });
    await until(() => child.stderr().includes('not json'), { what: 'all of its output came' });
    child.kill('SIGTERM');
    expect(await child.exited).toEqual({ code: null, signal: 'SIGTERM' });
    await expect(child.next()).rejects.toThrow(/ended without the message; it wrote:\nnot json/);
    expect(child.messages).toHaveLength(2);
  } finally {
    await endChild(child);
  }
});

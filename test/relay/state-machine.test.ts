import { describe, expect, test } from 'vitest';
import { StateMachine } from '../../src/relay/service/state-machine.ts';

const lamp = () =>
  new StateMachine<'off' | 'on' | 'broken'>('lamp', 'off', { off: ['on'], on: ['off', 'broken'], broken: [] });

describe('a state machine', () => {
  test('makes legal transitions, and stays where it is told to be already', () => {
    const state = lamp();
    state.to('off');
    state.to('on');
    expect(state.is('on')).toBe(true);
    state.to('broken');
    expect(state.current).toBe('broken');
  });

  test('refuses an illegal transition, and keeps its state', () => {
    const state = lamp();
    expect(() => state.to('broken')).toThrow('Illegal transition of the lamp: off -> broken');
    expect(state.current).toBe('off');
  });

  test('makes it all the same in production', () => {
    const before = process.env.NODE_ENV;
    process.env.NODE_ENV = 'production';
    try {
      const state = lamp();
      state.to('broken');
      expect(state.current).toBe('broken');
    } finally {
      process.env.NODE_ENV = before;
    }
  });
});

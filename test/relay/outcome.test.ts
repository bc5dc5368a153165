import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { combine, type NamedOutcome, type TargetOutcome } from '../../src/relay/event/outcome.ts';

const outcomes: Record<TargetOutcome['kind'], TargetOutcome> = {
  delivered: { kind: 'delivered' },
  failed: { kind: 'failed', error: new Error('no') },
  rejected: { kind: 'rejected', error: new Error('never') },
  unavailable: { kind: 'unavailable' },
  released: { kind: 'released' },
};
const worstFirst = ['rejected', 'failed', 'released', 'unavailable', 'delivered'] as const;

const named = (kind: TargetOutcome['kind'], index: number): NamedOutcome => ({
  target: `t${index}`,
  owedAs: `t${index}`,
  outcome: outcomes[kind],
});

describe('the outcomes of several targets', () => {
  test('combine to the worst of them, and every target is either done or owed', () => {
    const kinds = fc.array(fc.constantFrom(...worstFirst), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(kinds, (given) => {
        const combined = combine(['before'], given.map(named));
        expect(combined.kind).toBe(worstFirst.find((kind) => given.includes(kind)));
        const reached = given.flatMap((kind, index) => (kind === 'delivered' ? `t${index}` : []));
        const has = 'targets' in combined ? combined.targets : combined.done;
        expect(has).toEqual(['before', ...reached]);
        const missing = given.flatMap((kind, index) => (kind === 'delivered' ? [] : `t${index}`));
        if ('owed' in combined) expect(combined.owed).toEqual(missing);
        if ('waitsFor' in combined) expect(combined.waitsFor).toEqual(missing);
      }),
    );
  });

  test('show the error that decided last', () => {
    const combined = combine([], [named('rejected', 1), named('failed', 2)]);
    expect(combined).toMatchObject({ errors: [{ target: 't2' }, { target: 't1', error: 'never' }] });
  });

  test('release an event that only another relay can deliver, for a second if nothing was delivered', () => {
    const foreign: NamedOutcome = { ...named('released', 1), outcome: { kind: 'released', isForeign: true } };
    expect(combine([], [foreign])).toMatchObject({ kind: 'released', delayMs: 1_000, owed: ['t1'] });
    expect(combine([], [foreign, named('delivered', 2)])).toEqual({ kind: 'released', done: ['t2'], owed: ['t1'] });
  });
});

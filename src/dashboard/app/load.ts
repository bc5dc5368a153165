import { type Signal, useSignal } from '@preact/signals';
import { useCallback, useEffect } from 'preact/hooks';
import { messageOf } from './failure.ts';

export interface Loaded<T> {
  data: Signal<T | undefined>;
  problem: Signal<string | undefined>;
  busy: Signal<boolean>;
  reload(): void;
}

/** Calls `read` now and when `key` changes. What an earlier call returns late is ignored. */
export function useLoaded<T>(key: string, read: () => Promise<T>): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);
  const turn = useSignal(0);
  const reload = useCallback(() => {
    const own = turn.peek() + 1;
    turn.value = own;
    busy.value = true;
    read()
      .then(
        (value) => {
          if (turn.peek() !== own) return;
          data.value = value;
          problem.value = undefined;
        },
        (error) => {
          if (turn.peek() === own) problem.value = messageOf(error);
        },
      )
      .finally(() => {
        if (turn.peek() === own) busy.value = false;
      });
  }, [key]);
  useEffect(reload, [reload]);
  return { data, problem, busy, reload };
}

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { get, type Operation, post } from './api.ts';
import { messageOf } from './failure.ts';
import { number, plural } from './format.ts';
import { Dialog, Problem, ReasonField } from './parts.tsx';

export interface Action {
  title: string;
  /** The word on the button. */
  verb: string;
  /** The path of the API, and what is sent with the reason. */
  path: string;
  body: object;
  /** Whether it takes something away. */
  danger?: boolean;
  /** What will happen. */
  explanation: ComponentChildren;
  /** Reads how much it will change, in a sentence. */
  preview?: () => Promise<string>;
}

const pollMs = 300;
/** In a row: three seconds. */
const pollFailuresMax = 10;

/** Asks before a change: what will happen, how many, and why. Then shows the progress and the result. */
export function ActionDialog({ action, onClose }: { action: Action; onClose: (changed: boolean) => void }) {
  const reason = useSignal('');
  const preview = useSignal<string | undefined>(undefined);
  const problem = useSignal<string | undefined>(undefined);
  const operation = useSignal<Operation | undefined>(undefined);
  /** Where a replay continues that has not come to its end. Kept when an attempt to continue fails. */
  const after = useSignal<string | undefined>(undefined);
  const state = useSignal<'asking' | 'running' | 'ended'>('asking');

  useEffect(() => {
    let closed = false;
    action.preview?.().then(
      (text) => {
        if (!closed) preview.value = text;
      },
      (error) => {
        if (!closed) problem.value = messageOf(error);
      },
    );
    return () => {
      closed = true;
    };
  }, [action]);

  const run = async () => {
    state.value = 'running';
    problem.value = undefined;
    operation.value = undefined;
    try {
      const why = reason.value.trim();
      const more = { ...(why && { reason: why }), ...(after.value && { after: after.value }) };
      const answer = await post<Partial<Operation>>(action.path, { ...action.body, ...more });
      if (answer.state !== undefined) {
        const { next } = await watch(answer as Operation);
        after.value = next ?? after.value;
      }
      state.value = 'ended';
    } catch (error) {
      problem.value = messageOf(error);
      state.value = 'asking';
    }
  };
  const watch = async (started: Operation): Promise<Operation> => {
    let latest = started;
    operation.value = latest;
    // The operation goes on without an answer: asking again is better than offering to start a second one.
    for (let failures = 0; latest.state === 'running'; ) {
      await new Promise((resolve) => setTimeout(resolve, pollMs));
      try {
        latest = await get<Operation>(`operations/${started.id}`);
        operation.value = latest;
        failures = 0;
      } catch (error) {
        failures++;
        if (failures === pollFailuresMax) throw error;
      }
    }
    return latest;
  };
  const interrupt = () => {
    const id = operation.value?.id;
    if (id !== undefined) void post(`operations/${id}/interrupt`, {}).catch(() => {});
  };
  const close = () => onClose(state.value !== 'asking' || after.value !== undefined);

  return (
    <Dialog title={action.title} onClose={close}>
      {state.value === 'asking' && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void run();
          }}
        >
          <div class="explanation">{action.explanation}</div>
          {action.preview && (
            <p class="preview" aria-live="polite">
              {preview.value ?? 'Counting …'}
            </p>
          )}
          <ReasonField reason={reason} />
          <Problem text={problem.value} />
          <footer>
            <button type="button" onClick={close}>
              Cancel
            </button>
            <button type="submit" class={action.danger ? 'danger' : 'primary'}>
              {action.verb}
            </button>
          </footer>
        </form>
      )}
      {state.value === 'running' && (
        <div role="status">
          <p>
            {operation.value === undefined ? 'Working …' : `${plural(operation.value.count, 'event')} changed so far.`}
          </p>
          <progress aria-label={action.title} />
          <footer>
            {operation.value && (
              <button type="button" onClick={interrupt}>
                Stop here
              </button>
            )}
          </footer>
        </div>
      )}
      {state.value === 'ended' && (
        <div role="status">
          <p class="result">{resultOf(operation.value)}</p>
          <Problem text={operation.value?.error?.message} />
          <footer>
            {operation.value?.state !== 'done' && after.value && (
              <button type="button" onClick={() => void run()}>
                Continue
              </button>
            )}
            <CloseButton onClick={close} />
          </footer>
        </div>
      )}
    </Dialog>
  );
}

/** Takes the focus: the button that was pressed is gone. */
function CloseButton({ onClick }: { onClick: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => button.current?.focus(), []);
  return (
    <button ref={button} type="button" class="primary" onClick={onClick}>
      Close
    </button>
  );
}

function resultOf(operation: Operation | undefined): string {
  if (operation === undefined) return 'Done.';
  const { state, count } = operation;
  const changed = `${number(count)} ${count === 1 ? 'event' : 'events'} changed`;
  if (state === 'failed') return `It failed. ${changed} before that.`;
  if (state === 'interrupted') return `Stopped. ${changed}.`;
  return count === 0
    ? 'Nothing was left to change. Another operator or a relay was faster: see the audit.'
    : `Done. ${changed}.`;
}

import { useSignal } from '@preact/signals';
import { post, type StoryData } from './api.ts';
import { messageOf } from './failure.ts';
import { pretty } from './format.ts';
import { Dialog, Problem, ReasonField } from './parts.tsx';

/** Another payload for a dead letter, which is then retried. */
export function EditDialog({ story, onClose }: { story: StoryData; onClose: (changed: boolean) => void }) {
  const text = useSignal(pretty(story.payload.json ?? ''));
  const reason = useSignal('');
  const problem = useSignal<string | undefined>(undefined);
  const busy = useSignal(false);
  const submit = async () => {
    let payload: unknown;
    try {
      payload = JSON.parse(text.value);
    } catch (error) {
      problem.value = `This is not JSON: ${messageOf(error)}`;
      return;
    }
    busy.value = true;
    try {
      const why = reason.value.trim();
      await post(`events/${story.seq}/edit-and-retry`, { payload, ...(why && { reason: why }) });
      onClose(true);
    } catch (error) {
      problem.value = messageOf(error);
      busy.value = false;
    }
  };
  return (
    <Dialog title="Edit and retry" onClose={() => onClose(false)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <p class="explanation">
          Targets that do not have the event get this payload. The log keeps the original, and the audit records both.
        </p>
        <label>
          Payload
          <textarea
            rows={14}
            spellcheck={false}
            value={text.value}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </label>
        <ReasonField reason={reason} />
        <Problem text={problem.value} />
        <footer>
          <button type="button" onClick={() => onClose(false)}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            Save and retry
          </button>
        </footer>
      </form>
    </Dialog>
  );
}

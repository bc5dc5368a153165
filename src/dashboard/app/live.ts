import { signal } from '@preact/signals';
import { apiUrl, loadMe, type OverviewData } from './api.ts';

/** The latest state of the outbox. */
export const overview = signal<OverviewData | undefined>(undefined);
/** Why the state is not up to date: the database or the server cannot be reached. */
export const trouble = signal<string | undefined>(undefined);
/** The time that relative times are measured from. */
export const now = signal(Date.now());

const reconnectMs = 3_000;
setInterval(() => {
  now.value = Date.now();
}, 5_000);

/** Follows an outbox until the returned function is called. */
export function follow(outbox: string): () => void {
  overview.value = undefined;
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const connect = () => {
    source = new EventSource(apiUrl(`${encodeURIComponent(outbox)}/live`));
    source.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      trouble.value = message.error?.message;
      if (message.overview) overview.value = message.overview;
      now.value = Date.now();
    };
    source.onerror = () => {
      trouble.value = 'The dashboard server does not answer. Trying again.';
      // The browser reconnects by itself, but not after an error status.
      if (source?.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(connect, reconnectMs);
      loadMe().catch(() => {});
    };
  };
  connect();
  return () => {
    source?.close();
    clearTimeout(timer);
  };
}

import { type Signal, useSignal } from '@preact/signals';
import type { ComponentChildren, VNode } from 'preact';
import { cloneElement, toChildArray } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { ago, exactTime } from './format.ts';
import { now } from './live.ts';
import { href } from './route.ts';

type Tone = 'good' | 'attention' | 'bad' | 'quiet' | 'busy';

const tones: Record<string, Tone> = {
  SENT: 'good',
  PROCESSING: 'busy',
  FAILED: 'bad',
  PENDING: 'quiet',
  up: 'good',
  alive: 'good',
  active: 'good',
  done: 'good',
  down: 'bad',
  overdue: 'bad',
  failing: 'bad',
  failed: 'bad',
  critical: 'bad',
  paused: 'attention',
  warning: 'attention',
  unserved: 'attention',
  running: 'busy',
  open: 'good',
  detached: 'attention',
  good: 'good',
  attention: 'attention',
  bad: 'bad',
  unreachable: 'bad',
};

const words: Record<string, string> = {
  SENT: 'delivered',
  PROCESSING: 'in flight',
  FAILED: 'dead',
  PENDING: 'waiting',
  good: 'healthy',
  attention: 'attention',
  bad: 'trouble',
};

/** A state as a word with a colour. */
export function State({ of }: { of: string }) {
  return <span class={`state ${tones[of] ?? 'quiet'}`}>{words[of] ?? of}</span>;
}

/** How long ago, with the exact time as a tooltip, or beside it where it is compared with logs. */
export function Time({ at, exact = false }: { at: string; exact?: boolean }) {
  return (
    <>
      <time dateTime={at} title={exactTime(at)}>
        {ago(at, now.value)}
      </time>
      {exact && <span class="dim exact"> {exactTime(at)}</span>}
    </>
  );
}

export function Section({
  title,
  aside,
  children,
}: {
  title: string;
  aside?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <section class="panel" aria-label={title}>
      <header>
        <h2>{title}</h2>
        {aside}
      </header>
      {children}
    </section>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Problem({ text }: { text: string | undefined }) {
  return text === undefined ? null : (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

type Cell = VNode<{ class?: string }>;
type Row = VNode<{ children: ComponentChildren }>;

interface TableProps {
  label: string;
  columns: string[];
  /** Rows with a cell for each column. A cell of the class `number` is aligned with the others of its column at the right. */
  children: ComponentChildren;
}

/** On a phone each row is a block in which every cell has the name of its column. A wide table scrolls sideways by itself. */
export function Table({ label, columns, children }: TableProps) {
  const cellsOf = (row: Row) => toChildArray(row.props.children) as unknown as Cell[];
  const rows = toChildArray(children) as unknown as Row[];
  const first = rows[0] === undefined ? [] : cellsOf(rows[0]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable with the keyboard.
    <section class="scroll" tabIndex={0} aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th key={column} scope="col" class={first[index]?.props.class === 'number' ? 'number' : ''}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) =>
            cloneElement(
              row,
              {},
              cellsOf(row).map((cell, index) => cloneElement(cell, { 'data-label': columns[index] } as object)),
            ),
          )}
        </tbody>
      </table>
    </section>
  );
}

export function EventLink({ id, seq }: { id: string | null; seq: string }) {
  return (
    <a class="mono" href={href('event', id ?? seq)}>
      {id === null ? `seq ${seq}` : `…${id.slice(-12)}`}
    </a>
  );
}

export function AggregateLink({ of }: { of: { type: string; id: string } | null }) {
  if (of === null) return <span class="dim">deleted</span>;
  return (
    <a href={href('aggregate', of.type, of.id)} class="clip" title={`${of.type} ${of.id}`}>
      {of.type} {of.id}
    </a>
  );
}

/** An error text of any length: its first line, and the rest on demand. */
export function ErrorText({ text }: { text: string }) {
  const [first = '', ...rest] = text.split('\n');
  if (rest.length === 0 && first.length <= 240) return <span class="error">{first}</span>;
  return (
    <details class="error">
      <summary>{first.slice(0, 240)}</summary>
      <pre>{text}</pre>
    </details>
  );
}

export function Copy({ text, label }: { text: string; label: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    copied.value = true;
    setTimeout(() => {
      copied.value = false;
    }, 1_500);
  };
  return (
    <button type="button" class="small" aria-label={label} onClick={() => void copy().catch(() => {})}>
      {copied.value ? 'Copied' : 'Copy'}
    </button>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog. Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          ×
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** Why an operator does something. */
export function ReasonField({ reason }: { reason: Signal<string> }): VNode {
  return (
    <label>
      Why? <span class="dim">For the audit, optional</span>
      <input
        type="text"
        maxLength={500}
        value={reason.value}
        onInput={(event) => {
          reason.value = event.currentTarget.value;
        }}
      />
    </label>
  );
}

import picocolors from 'picocolors';

import { toJson } from './json-text.ts';
import { type RepeatFlags, repeatFlags } from './printed-commands.ts';
import type { Terminal } from './terminal.ts';
import { wantsColour } from './terminal.ts';

type Colours = ReturnType<typeof picocolors.createColors>;

/** Output of a command: text, or with --json exactly one JSON document. */
export class Output {
  readonly json: boolean;
  readonly paint: Colours;
  /** For the command line's own text. Stored data that has such a command in it must be shown as it is. */
  readonly repeatFlags: RepeatFlags;
  readonly #stdout: Terminal['stdout'];

  constructor(terminal: Terminal, json: boolean, repeat: RepeatFlags = repeatFlags({})) {
    this.json = json;
    this.repeatFlags = repeat;
    this.#stdout = terminal.stdout;
    this.paint = picocolors.createColors(!json && wantsColour(terminal.stdout, terminal.env));
  }

  /** Writes the value with --json, otherwise calls `text`. */
  show(value: unknown, text: () => void): void {
    if (this.json) this.#stdout.write(`${toJson(value)}\n`);
    else text();
  }

  /** Writes one line of text. Does nothing with --json. */
  line(text = ''): void {
    if (!this.json) this.#stdout.write(`${text}\n`);
  }

  table(headers: readonly string[], rows: readonly (readonly string[])[]): void {
    const [head = '', ...lines] = renderTable(headers, rows, this.#stdout.columns);
    this.line(this.paint.bold(head));
    for (const line of lines) this.line(line);
  }
}

/** Minimum width of the last column. On a narrower terminal lines wrap. */
const lastColumnMin = 40;

/**
 * Lines of left-aligned columns, two spaces apart. Only the last column, usually an error, is cut to the width of the
 * terminal: a truncated id is useless.
 */
export function renderTable(
  headers: readonly string[],
  rows: readonly (readonly string[])[],
  columns = Number.POSITIVE_INFINITY,
): string[] {
  const cells = [headers, ...rows.map((row) => row.map(printable))];
  const widths = headers.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const last = headers.length - 1;
  const before = widths.slice(0, last).reduce((sum, width) => sum + width + 2, 0);
  const room = Math.max(lastColumnMin, columns - before);
  return cells.map((row) =>
    row
      .map((cell, column) => (column === last ? cut(cell, room) : cell.padEnd(widths[column] ?? 0)))
      .join('  ')
      .trimEnd(),
  );
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/**
 * Makes text from the database safe for a terminal, on one line: an error or an aggregate's id may contain escape sequences
 * of an attacker. Invisible characters are escaped too: bidirectional controls reorder text on the screen, and two ids that
 * differ in a zero-width character look the same.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu, (character) => {
    if (character === '\n') return ' ⏎ ';
    if (character === '\t') return ' ';
    const code = (character.codePointAt(0) ?? 0).toString(16);
    if (code.length <= 2) return `\\x${code.padStart(2, '0')}`;
    return code.length <= 4 ? `\\u${code.padStart(4, '0')}` : `\\u{${code}}`;
  });
}

/** `2026-01-31 12:00:00.000Z`: sortable, in UTC. */
export function instant(time: Date): string {
  if (Number.isNaN(time.getTime())) return 'at an unknown time';
  return time.toISOString().replace('T', ' ');
}

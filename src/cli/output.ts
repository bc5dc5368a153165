import picocolors from 'picocolors';

import { toJson } from './json-text.ts';
import type { Terminal } from './terminal.ts';
import { wantsColour } from './terminal.ts';

type Colours = ReturnType<typeof picocolors.createColors>;

/** What a command shows: text for a person, or with --json one JSON document and nothing else. */
export class Output {
  readonly json: boolean;
  readonly paint: Colours;
  readonly #stdout: Terminal['stdout'];

  constructor(terminal: Terminal, json: boolean) {
    this.json = json;
    this.#stdout = terminal.stdout;
    this.paint = picocolors.createColors(!json && wantsColour(terminal.stdout, terminal.env));
  }

  /** With --json the value, otherwise what `text` writes. */
  show(value: unknown, text: () => void): void {
    if (this.json) this.#stdout.write(`${toJson(value)}\n`);
    else text();
  }

  /** One line for a person. Left out with --json. */
  line(text = ''): void {
    if (!this.json) this.#stdout.write(`${text}\n`);
  }

  table(headers: readonly string[], rows: readonly (readonly string[])[]): void {
    const [head = '', ...lines] = renderTable(headers, rows, this.#stdout.columns);
    this.line(this.paint.bold(head));
    for (const line of lines) this.line(line);
  }
}

/** Room that the last column keeps, however narrow the terminal is: then lines wrap. */
const lastColumnMin = 40;

/**
 * Lines of left-aligned columns, two spaces apart. Only the last column, an error text say, is cut where the terminal
 * ends: an id that lost its end is of no use.
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
 * Text from the database on one line, harmless to a terminal: an error text or an aggregate's id may hold escape
 * sequences that somebody else chose. What is invisible is written out too: bidirectional controls show a text in another
 * order than it has, and two ids that differ in a zero-width character look the same.
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

/** `2026-01-31 12:00:00.000Z`: sortable, and in the zone that servers log in. */
export function instant(time: Date): string {
  if (Number.isNaN(time.getTime())) return 'at an unknown time';
  return time.toISOString().replace('T', ' ');
}

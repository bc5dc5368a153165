import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { StopSignals } from '../process/stop-signals.ts';
import { errorText } from '../telemetry/error-text.ts';
import { redact } from '../telemetry/redaction.ts';
import type { Context } from './context.ts';
import { Output, printable } from './output.ts';
import type { Terminal } from './terminal.ts';

const hideCursor = '\x1b[?25l';
const showCursor = '\x1b[?25h';
const clearScreen = '\x1b[2J';

/**
 * Shows a state again and again until Ctrl-C or SIGTERM. On a terminal each state replaces the last one; elsewhere they follow each
 * other, with --json as one document per line. A state that cannot be read is an error at first, and later only reported: an outage
 * of the database is what people watch.
 */
export async function watch<T>(
  { terminal, output }: Context,
  intervalMs: number,
  read: () => Promise<T>,
  show: (state: T, output: Output) => void,
): Promise<void> {
  const { stdout } = terminal;
  const { json } = output;
  const isLive = stdout.isTTY === true && terminal.env.TERM !== 'dumb' && !json;
  const signals = new StopSignals();
  const ended = new AbortController();
  void signals.first.then(() => ended.abort());
  let text = '';
  const write = (next: string, note: string) => {
    if (isLive) stdout.write(frame(`${note}\n\n${next}`, stdout.rows));
    else stdout.write(json ? `${JSON.stringify(JSON.parse(next))}\n` : `${next}\n`);
  };
  try {
    text = await render(terminal, output, read, show);
    if (isLive) stdout.write(`${hideCursor}${clearScreen}`);
    const every = `every ${intervalMs / 1_000} s, Ctrl-C ends it`;
    write(text, `${clock()}  ${every}`);
    while (await slept(intervalMs, ended.signal)) {
      try {
        text = await Promise.race([render(terminal, output, read, show), aborted(ended.signal)]);
        if (ended.signal.aborted) break;
        write(text, `${clock()}  ${every}`);
      } catch (error) {
        const problem = printable(redact(errorText(error)));
        if (isLive) write(text, `${clock()}  cannot read the state, retrying: ${problem}`);
        else terminal.stderr.write(`cannot read the state, retrying: ${problem}\n`);
      }
    }
  } finally {
    if (isLive) stdout.write(showCursor);
    signals.close();
  }
}

/** Draws over the last frame, line by line: clearing the screen first would flicker. Lines that do not fit are left out. */
export function frame(text: string, rows = Number.POSITIVE_INFINITY): string {
  const lines = text.trimEnd().split('\n');
  const fitting = lines.length < rows ? lines : [...lines.slice(0, Math.max(1, rows - 2)), '…'];
  return `\x1b[H${fitting.map((line) => `${line}\x1b[K\n`).join('')}\x1b[J`;
}

/** What `show` writes for the current state. */
async function render<T>(
  terminal: Terminal,
  { json, repeatFlags }: Output,
  read: () => Promise<T>,
  show: (state: T, output: Output) => void,
): Promise<string> {
  const state = await read();
  let text = '';
  const sink = new Writable({
    write(chunk, _encoding, done) {
      text += String(chunk);
      done();
    },
  });
  const { isTTY, columns } = terminal.stdout;
  const size = { ...(isTTY !== undefined && { isTTY }), ...(columns !== undefined && { columns }) };
  show(state, new Output({ ...terminal, stdout: Object.assign(sink, size) }, json, repeatFlags));
  return text;
}

function clock(): string {
  return new Date().toISOString().replace('T', ' ').slice(0, 19).concat('Z');
}

async function slept(ms: number, signal: AbortSignal): Promise<boolean> {
  await sleep(ms, undefined, { signal }).catch(() => {});
  return !signal.aborted;
}

function aborted(signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(''), { once: true }));
}

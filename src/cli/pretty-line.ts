import picocolors from 'picocolors';
import type { LineFormat, Logger } from '../telemetry/logging.ts';
import { printable } from './output.ts';

/** Lines for people: `09:12:44.031  warn   delivery failed, will retry  event_type=order.created attempt=2`, in local time. */
export function prettyLine(colours: boolean): LineFormat {
  const paint = picocolors.createColors(colours);
  const levelPaint: Record<keyof Logger, (text: string) => string> = {
    debug: paint.dim,
    info: paint.green,
    warn: paint.yellow,
    error: paint.red,
  };
  return (level, message, fields) => {
    const shown = Object.entries(fields).filter(
      // No line was left out, which is the usual case.
      ([name, value]) => name !== 'stack' && value !== undefined && !(name === 'suppressed' && value === 0),
    );
    // The error is the longest one.
    const isError = (name: string) => name === 'error';
    const ordered = [...shown.filter(([name]) => !isError(name)), ...shown.filter(([name]) => isError(name))];
    const texts = ordered.map(([name, value]) => {
      const text = `${paint.dim(`${printable(name)}=`)}${valueText(value)}`;
      return isError(name) ? levelPaint[level](text) : text;
    });
    const line = [
      localTime(new Date()),
      levelPaint[level](level.padEnd(5)),
      paint.bold(printable(message)),
      texts.join(' '),
    ]
      .join('  ')
      .trimEnd();
    return [line, ...framesOf(fields).map((frame) => paint.dim(frame))].join('\n');
  };
}

/** The frames of the stack, on lines of their own. Its first line repeats the error. */
function framesOf(fields: { stack?: unknown }): string[] {
  if (typeof fields.stack !== 'string') return [];
  return fields.stack
    .split('\n')
    .filter((line) => line.startsWith('    at '))
    .map(printable);
}

function localTime(time: Date): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(two).join(':');
  return `${clock}.${String(time.getMilliseconds()).padStart(3, '0')}`;
}

/** Names of events come from users: a text with escape sequences must not reach the terminal. */
function valueText(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? String(value));
  const safe = printable(text);
  return typeof value === 'string' && /[\s"=]|^$/.test(safe) ? JSON.stringify(safe) : safe;
}
